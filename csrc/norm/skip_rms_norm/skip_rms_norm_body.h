// Rows divided by the root of their mean square; see skip_rms_norm.h and row_vectors.h.
namespace {

template <Real kType>
struct Norm {
  const NormRows& rows;
  // Where the sums of a row are read again, already rounded.
  void* kept;

  template <class V>
  TOS_INLINE V add(int64_t start, int64_t i) const {
    V sum = load<V, kType>(rows.x, start + i);
    // Rounded after each addition, as torch adds tensors.
    if (rows.skip != nullptr) sum = rounded<kType>(sum + load<V, kType>(rows.skip, start + i));
    if (rows.bias != nullptr) sum = rounded<kType>(sum + load<V, kType>(rows.bias, i));
    return sum;
  }

  float root(int64_t start) const {
    constexpr int64_t kSums = 4, kStep = kWidthOf<Floats>;
    Floats squares[kSums] = {};
    float tail_squares = 0.0f;
    const bool plain = rows.skip == nullptr && rows.bias == nullptr;
    int64_t i = 0;
    if (plain) {
      for (; i + kSums * kStep <= rows.width; i += kSums * kStep) {
        for (int64_t s = 0; s < kSums; ++s) {
          const Floats one = load<Floats, kType>(rows.x, start + i + s * kStep);
          squares[s] += one * one;
        }
      }
      for (; i < rows.width; ++i) {
        const float one = load<float, kType>(rows.x, start + i);
        tail_squares += one * one;
      }
    } else {
      for (; i + kSums * kStep <= rows.width; i += kSums * kStep) {
        for (int64_t s = 0; s < kSums; ++s) {
          const Floats one = add<Floats>(start, i + s * kStep);
          store<kType>(kept, start + i + s * kStep, one);
          squares[s] += one * one;
        }
      }
      for (; i < rows.width; ++i) {
        const float one = add<float>(start, i);
        store<kType>(kept, start + i, one);
        tail_squares += one * one;
      }
    }
    const float sum = sum_of((squares[0] + squares[1]) + (squares[2] + squares[3])) + tail_squares;
    return 1.0f / std::sqrt(sum / static_cast<float>(rows.width) + rows.epsilon);
  }

  template <class V>
  TOS_INLINE void scale(const void* from, int64_t start, int64_t i, float factor) const {
    const V value = load<V, kType>(from, start + i) * factor * load<V, kType>(rows.gamma, i);
    store<kType>(rows.y, start + i, value);
  }

  void row(int64_t number) const {
    const int64_t start = number * rows.width;
    const float factor = root(start);
    if (rows.inverse != nullptr) rows.inverse[number] = factor;
    const void* from = rows.skip == nullptr && rows.bias == nullptr ? rows.x : kept;
    int64_t i = 0;
    for (; i + kWidthOf<Floats> <= rows.width; i += kWidthOf<Floats>) scale<Floats>(from, start, i, factor);
    for (; i < rows.width; ++i) scale<float>(from, start, i, factor);
  }
};

template <Real kType>
void normalize_rows(const NormRows& rows, int64_t begin, int64_t end) {
  const Norm<kType> norm{rows, rows.total != nullptr ? rows.total : rows.y};
  for (int64_t number = begin; number < end; ++number) norm.row(number);
}

void normalize(Real type, const NormRows& rows, int64_t begin, int64_t end) {
  constexpr decltype(&normalize_rows<Real::kFloat>) kByType[] = {
      normalize_rows<Real::kFloat>, normalize_rows<Real::kHalf>, normalize_rows<Real::kBFloat16>};
  kByType[static_cast<int>(type)](rows, begin, end);
}

}  // namespace
