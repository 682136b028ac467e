// Pairs of features turned by angles; see rotary.h and row_vectors.h.
namespace {

#if defined(__GNUC__)
typedef uint64_t Longs __attribute__((vector_size(4 * TOS_LANES)));

// Each lane's neighbour in its pair.
TOS_INLINE Floats swapped_pairs(const Floats& lanes) {
  const Longs pairs = same_bits<Longs>(lanes);
  return same_bits<Floats>((pairs >> 32) | (pairs << 32));
}
#endif

// y = x * cos + other * sin, where `other` is the other of each pair and the sine of the first is negative.
template <Real kType>
struct Rotation {
  const RotateRows& rows;
  float* cos;  // [width]
  float* sin;  // [width]

  void take_angles(int64_t token) const {
    const int64_t half = rows.width / 2;
    const int64_t start = (rows.angles == nullptr ? token : rows.angles[token]) * half;
    for (int64_t i = 0; i < half; ++i) {
      const float c = load<float, kType>(rows.cos, start + i), s = load<float, kType>(rows.sin, start + i);
      const int64_t first = rows.interleaved ? 2 * i : i, second = rows.interleaved ? 2 * i + 1 : half + i;
      cos[first] = cos[second] = c;
      sin[first] = -s;
      sin[second] = s;
    }
  }

  template <class V>
  TOS_INLINE V turned(const V& x, const V& other, int64_t i) const {
    return x * read<V>(cos, i, 4) + other * read<V>(sin, i, 4);
  }

  void interleaved(int64_t from, int64_t to) const {
    int64_t i = 0;
#if defined(__GNUC__)
    for (; i + kWidthOf<Floats> <= rows.width; i += kWidthOf<Floats>) {
      const Floats x = load<Floats, kType>(rows.x, from + i);
      store<kType>(rows.y, to + i, turned(x, swapped_pairs(x), i));
    }
#endif
    for (; i < rows.width; ++i) {
      const float x = load<float, kType>(rows.x, from + i),
                  other = load<float, kType>(rows.x, from + (i ^ 1));
      store<kType>(rows.y, to + i, turned(x, other, i));
    }
  }

  // From feature `begin` on `count` features whose others lie `away`.
  void in_halves(int64_t from, int64_t to, int64_t begin, int64_t count, int64_t away) const {
    int64_t i = begin;
    for (; i + kWidthOf<Floats> <= begin + count; i += kWidthOf<Floats>) {
      const Floats x = load<Floats, kType>(rows.x, from + i);
      store<kType>(rows.y, to + i, turned(x, load<Floats, kType>(rows.x, from + i + away), i));
    }
    for (; i < begin + count; ++i) {
      const float x = load<float, kType>(rows.x, from + i);
      store<kType>(rows.y, to + i, turned(x, load<float, kType>(rows.x, from + i + away), i));
    }
  }

  void token(int64_t number) const {
    constexpr int64_t kBytes = kType == Real::kFloat ? 4 : 2;
    const int64_t half = rows.width / 2, copied = rows.size - rows.width;
    take_angles(number);
    for (int64_t head = 0; head < rows.heads; ++head) {
      const int64_t from = rows.from.place(number, head, rows.length);
      const int64_t to = rows.to.place(number, head, rows.length);
      if (rows.interleaved) {
        interleaved(from, to);
      } else {
        in_halves(from, to, 0, half, half);
        in_halves(from, to, half, half, -half);
      }
      if (copied == 0) continue;
      std::memcpy(static_cast<char*>(rows.y) + (to + rows.width) * kBytes,
                  static_cast<const char*>(rows.x) + (from + rows.width) * kBytes,
                  static_cast<size_t>(copied * kBytes));
    }
  }
};

template <Real kType>
void rotate_tokens(const RotateRows& rows, int64_t begin, int64_t end, float* scratch) {
  const Rotation<kType> rotation{rows, scratch, scratch + rows.width};
  for (int64_t number = begin; number < end; ++number) rotation.token(number);
}

void rotate(Real type, const RotateRows& rows, int64_t begin, int64_t end, float* scratch) {
  constexpr decltype(&rotate_tokens<Real::kFloat>) kByType[] = {
      rotate_tokens<Real::kFloat>, rotate_tokens<Real::kHalf>, rotate_tokens<Real::kBFloat16>};
  kByType[static_cast<int>(type)](rows, begin, end, scratch);
}

}  // namespace
