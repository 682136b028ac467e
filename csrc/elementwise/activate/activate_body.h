// Activations, and products with them; see activate.h and row_vectors.h.
namespace {

TOS_INLINE int32_t whole(float real) { return static_cast<int32_t>(real); }
#if defined(__GNUC__)
TOS_INLINE Ints whole(const Floats& reals) { return __builtin_convertvector(reals, Ints); }
#endif

template <class V>
struct IntsLike {
  using Type = int32_t;
};
#if defined(__GNUC__)
template <>
struct IntsLike<Floats> {
  using Type = Ints;
};
#endif

// e to the power of x, by the power of 2 that is nearest and a polynomial for what is left, to 2e-7 of it.
template <class V>
TOS_INLINE V exp_of(const V& x) {
  using I = typename IntsLike<V>::Type;
  const V inf = V{} + INFINITY, none = V{};
  const V underflow = V{} - 87.33f, overflow = V{} + 88.37f;
  V near = (x < underflow) ? underflow : x;
  near = (near > overflow) ? overflow : near;
  // The sum with this number has no place for a fraction.
  const V turns = near * 1.44269504f + 12582912.0f - 12582912.0f;
  const V remainder = near - turns * 0.693359375f + turns * 2.12194440e-4f;
  V sum = remainder * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * remainder + 8.3334519073e-3f;
  sum = sum * remainder + 4.1665795894e-2f;
  sum = sum * remainder + 1.6666665459e-1f;
  sum = sum * remainder + 5.0000001201e-1f;
  sum = sum * remainder * remainder + remainder + 1.0f;
  // What is no number has no power of 2.
  const V known = (turns == turns) ? turns : none;
  const I power = (whole(known) + 127) * (1 << 23);
  const V exponential = sum * same_bits<V>(power);
  const V large = (x > overflow) ? inf : exponential;
  return (x < underflow) ? none : large;
}

template <class V>
TOS_INLINE V sigmoid(const V& x) {
  return 1.0f / (1.0f + exp_of<V>(-x));
}

// The normal distribution function, to 1e-7: formula 7.1.26 of Abramowitz and Stegun, Handbook of
// Mathematical Functions.
template <class V>
TOS_INLINE V normal(const V& x) {
  const V z = x * 0.70710678f, size = (z < V{}) ? -z : z;
  const V t = 1.0f / (1.0f + 0.3275911f * size);
  V sum = t * 1.061405429f - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  const V tail = 0.5f * sum * t * exp_of<V>(-z * z);
  return (x < V{}) ? tail : 1.0f - tail;
}

template <Activation kKind, class V>
TOS_INLINE V activated(const V& x, float alpha) {
  if constexpr (kKind == Activation::kGelu) {
    return x * normal<V>(x);
  } else if constexpr (kKind == Activation::kTanhGelu) {
    // (1 + tanh(u)) / 2 is the sigmoid of 2u.
    return x * sigmoid<V>(x * (1.59576912f + 0.0713548163f * x * x));
  } else {
    return x * sigmoid<V>(x * alpha);
  }
}

template <Real kType, Activation kKind>
struct Activate {
  const ActivateRows& rows;

  template <class V>
  TOS_INLINE V sum(const void* x, int64_t at, const void* bias, int64_t i) const {
    const V value = load<V, kType>(x, at);
    return bias == nullptr ? value : rounded<kType>(value + load<V, kType>(bias, i));
  }

  template <class V>
  TOS_INLINE void one(int64_t row, int64_t i) const {
    V gate = sum<V>(rows.gate, row * rows.gate_stride + i, rows.gate_bias, i);
    const V limit = V{} + rows.limit;
    if (rows.limit > 0.0f) gate = (gate > limit) ? limit : gate;
    V value = activated<kKind, V>(gate, rows.alpha);
    if (rows.up != nullptr) {
      if (rows.rounded) value = rounded<kType>(value);
      V up = sum<V>(rows.up, row * rows.up_stride + i, rows.up_bias, i);
      if (rows.limit > 0.0f) {
        up = (up > limit) ? limit : up;
        up = (up < -limit) ? -limit : up;
      }
      value = value * (up + rows.beta);
    }
    store<kType>(rows.y, row * rows.width + i, value);
  }

  void row(int64_t number) const {
    int64_t i = 0;
    for (; i + kWidthOf<Floats> <= rows.width; i += kWidthOf<Floats>) one<Floats>(number, i);
    for (; i < rows.width; ++i) one<float>(number, i);
  }
};

template <Real kType, Activation kKind>
void activate_rows(const ActivateRows& rows, int64_t begin, int64_t end) {
  const Activate<kType, kKind> activation{rows};
  for (int64_t number = begin; number < end; ++number) activation.row(number);
}

template <Real kType>
void activate_kind(const ActivateRows& rows, int64_t begin, int64_t end) {
  constexpr decltype(&activate_rows<kType, Activation::kGelu>) kByKind[] = {
      activate_rows<kType, Activation::kGelu>, activate_rows<kType, Activation::kTanhGelu>,
      activate_rows<kType, Activation::kSigmoid>};
  kByKind[static_cast<int>(rows.kind)](rows, begin, end);
}

void activate(Real type, const ActivateRows& rows, int64_t begin, int64_t end) {
  constexpr decltype(&activate_kind<Real::kFloat>) kByType[] = {
      activate_kind<Real::kFloat>, activate_kind<Real::kHalf>, activate_kind<Real::kBFloat16>};
  kByType[static_cast<int>(type)](rows, begin, end);
}

}  // namespace
