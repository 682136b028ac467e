// What the codes of chain.h mean for vectors of floats; see row_vectors.h. Functions that torch's own library
// brings along are its own here as well, so that a chain gives what its steps would give; where a library
// does without them each number goes through the C library.
#if defined(__linux__) && defined(__GNUC__)
#define TOS_TORCH_MATH
#endif

#ifdef TOS_TORCH_MATH
#define TOS_JOINED(a, b, c) a##b##c
#define TOS_LANES_NAME(name, lanes) TOS_JOINED(Sleef_##name##f, lanes, _u10)
#define TOS_VECTOR_FUNCTION(name) TOS_LANES_NAME(name, TOS_LANES)
#define TOS_MATH_OF_ONE(name) extern "C" __attribute__((weak)) Floats TOS_VECTOR_FUNCTION(name)(Floats);
TOS_MATH_OF_ONE(exp)
TOS_MATH_OF_ONE(expm1)
TOS_MATH_OF_ONE(log)
TOS_MATH_OF_ONE(log1p)
TOS_MATH_OF_ONE(erf)
TOS_MATH_OF_ONE(tanh)
TOS_MATH_OF_ONE(sin)
TOS_MATH_OF_ONE(cos)
extern "C" __attribute__((weak)) Floats TOS_VECTOR_FUNCTION(pow)(Floats, Floats);

// Functions of MKL, of whole arrays that may be the same one.
#define TOS_MATH_OF_MANY(name) \
  extern "C" __attribute__((weak)) void vms##name(int, const float*, float*, long long);
TOS_MATH_OF_MANY(Exp)
TOS_MATH_OF_MANY(Ln)
TOS_MATH_OF_MANY(Sqrt)
TOS_MATH_OF_MANY(Erf)
TOS_MATH_OF_MANY(Tanh)
TOS_MATH_OF_MANY(Sin)
TOS_MATH_OF_MANY(Cos)
#endif

namespace {

template <class Function, class V>
TOS_INLINE V by_number(const Function& function, const V& x) {
  float each[kWidthOf<V>];
  std::memcpy(each, &x, sizeof(each));
  for (float& one : each) one = function(one);
  return read<V>(each, 0, 4);
}

#ifdef TOS_TORCH_MATH
#define TOS_MATH(name)                                                             \
  TOS_INLINE Floats name##_of(const Floats& x) {                                   \
    if (TOS_VECTOR_FUNCTION(name) != nullptr) return TOS_VECTOR_FUNCTION(name)(x); \
    return by_number([](float one) { return std::name(one); }, x);                 \
  }
#else
#define TOS_MATH(name)                                             \
  TOS_INLINE Floats name##_of(const Floats& x) {                   \
    return by_number([](float one) { return std::name(one); }, x); \
  }
#endif
TOS_MATH(exp)
TOS_MATH(expm1)
TOS_MATH(log)
TOS_MATH(log1p)
TOS_MATH(erf)
TOS_MATH(tanh)
TOS_MATH(sin)
TOS_MATH(cos)

TOS_INLINE Floats pow_of(const Floats& x, const Floats& y) {
#ifdef TOS_TORCH_MATH
  if (TOS_VECTOR_FUNCTION(pow) != nullptr) return TOS_VECTOR_FUNCTION(pow)(x, y);
#endif
  float each[kWidthOf<Floats>], powers[kWidthOf<Floats>];
  std::memcpy(each, &x, sizeof(each));
  std::memcpy(powers, &y, sizeof(powers));
  for (int64_t i = 0; i < kWidthOf<Floats>; ++i) each[i] = std::pow(each[i], powers[i]);
  return read<Floats>(each, 0, 4);
}

TOS_INLINE Floats sqrt_of(const Floats& x) {
#if TOS_LANES == 16 && defined(__GNUC__)
  return same_bits<Floats>(_mm512_maskz_sqrt_ps(0xffff, same_bits<__m512>(x)));
#elif TOS_LANES == 8 && defined(__GNUC__)
  return same_bits<Floats>(_mm256_sqrt_ps(same_bits<__m256>(x)));
#else
  return by_number([](float one) { return std::sqrt(one); }, x);
#endif
}

// Which codes torch computes by a function of many numbers.
template <ChainCode kCode>
constexpr bool kHasBlockMath =
    kCode == ChainCode::kSqrt || kCode == ChainCode::kExp || kCode == ChainCode::kLog ||
    kCode == ChainCode::kErf || kCode == ChainCode::kTanh || kCode == ChainCode::kSin ||
    kCode == ChainCode::kCos;

#ifdef TOS_TORCH_MATH
template <ChainCode kCode>
constexpr auto block_function() {
  if constexpr (kCode == ChainCode::kSqrt) return &vmsSqrt;
  if constexpr (kCode == ChainCode::kExp) return &vmsExp;
  if constexpr (kCode == ChainCode::kLog) return &vmsLn;
  if constexpr (kCode == ChainCode::kErf) return &vmsErf;
  if constexpr (kCode == ChainCode::kTanh) return &vmsTanh;
  if constexpr (kCode == ChainCode::kSin) return &vmsSin;
  if constexpr (kCode == ChainCode::kCos) return &vmsCos;
}
#endif

// Whether the library has it.
template <ChainCode kCode>
bool has_block_math() {
#ifdef TOS_TORCH_MATH
  return block_function<kCode>() != nullptr;
#else
  return false;
#endif
}

template <ChainCode kCode>
void block_math([[maybe_unused]] const float* from, [[maybe_unused]] int64_t count,
                [[maybe_unused]] float* to) {
#ifdef TOS_TORCH_MATH
  // High accuracy, denormal numbers as they are, and no report of errors: as torch calls them.
  constexpr long long kMode = 0x2 | 0x140000 | 0x100;
  block_function<kCode>()(static_cast<int>(count), from, to, kMode);
#endif
}

#if defined(__GNUC__)
typedef Ints Bits;
#else
typedef int32_t Bits;
#endif

TOS_INLINE Floats size_of(const Floats& x) { return same_bits<Floats>(same_bits<Bits>(x) & 0x7fffffff); }

TOS_INLINE Floats with_sign(const Floats& size, const Floats& x) {
  const Bits sign = same_bits<Bits>(x) & static_cast<int32_t>(0x80000000);
  return same_bits<Floats>(same_bits<Bits>(size) | sign);
}

TOS_INLINE Floats whole_of(const Floats& x) {
  // From this number on floats have no fraction.
  constexpr float kWhole = 8388608.0f;
  const Floats size = size_of(x), near = size + kWhole - kWhole;
  return (size < kWhole) ? with_sign(near, x) : x;
}

// A product that no sum takes in without rounding it.
TOS_INLINE Floats product_of(const Floats& x, const Floats& y) {
  Floats product = x * y;
#if defined(__GNUC__) && defined(__x86_64__)
  __asm__("" : "+x"(product));
#elif defined(__GNUC__) && defined(__aarch64__)
  __asm__("" : "+w"(product));
#endif
  return product;
}

TOS_INLINE Floats within(const Floats& x, const Floats& low, const Floats& high) {
  const Floats above = (low > x) ? low : x;
  return (high < above) ? high : above;
}

// Whichever number is not one wins.
TOS_INLINE Floats nan_first(const Floats& value, const Floats& x) { return (x == x) ? value : x; }

TOS_INLINE Floats sigmoid_of(const Floats& x) { return 1.0f / (1.0f + exp_of(-x)); }

// As torch has it in its Gelu: formula 7.1.26 of Abramowitz and Stegun, Handbook of Mathematical Functions.
TOS_INLINE Floats near_erf(const Floats& x) {
  const Floats t = 1.0f / (1.0f + 0.3275911f * size_of(x));
  Floats sum = t * 1.061405429f - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  return with_sign(1.0f - exp_of(-(x * x)) * t * sum, x);
}

TOS_INLINE Floats mish_of(const Floats& x) {
  // tanh(log(1 + e)) of e = exp(x); above 20 that is 1.
  const Floats e = exp_of((x > 20.0f) ? Floats{} + 20.0f : x), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

template <Real kType, ChainCode kCode>
TOS_INLINE Floats chain_of(const Floats& x, [[maybe_unused]] const Floats& y,
                           [[maybe_unused]] const Floats& z) {
  const Floats none{}, one = none + 1.0f;
  if constexpr (kCode == ChainCode::kAdd) return x + y;
  if constexpr (kCode == ChainCode::kSub) return x - y;
  if constexpr (kCode == ChainCode::kMul) return x * y;
  if constexpr (kCode == ChainCode::kDiv) return x / y;
  if constexpr (kCode == ChainCode::kMin) return nan_first((x < y) ? x : y, x);
  if constexpr (kCode == ChainCode::kMax) return nan_first((x > y) ? x : y, x);
  if constexpr (kCode == ChainCode::kPow) return pow_of(x, y);
  if constexpr (kCode == ChainCode::kNeg) return -x;
  if constexpr (kCode == ChainCode::kAbs) return size_of(x);
  if constexpr (kCode == ChainCode::kReciprocal) return 1.0f / x;
  if constexpr (kCode == ChainCode::kSqrt) return sqrt_of(x);
  if constexpr (kCode == ChainCode::kExp) return exp_of(x);
  if constexpr (kCode == ChainCode::kLog) return log_of(x);
  if constexpr (kCode == ChainCode::kErf) return erf_of(x);
  if constexpr (kCode == ChainCode::kTanh) return tanh_of(x);
  if constexpr (kCode == ChainCode::kSigmoid) return sigmoid_of(x);
  if constexpr (kCode == ChainCode::kRelu) return (none > x) ? none : x;
  if constexpr (kCode == ChainCode::kFloor) {
    const Floats whole = whole_of(x);
    return with_sign((whole > x) ? whole - 1.0f : whole, x);
  }
  if constexpr (kCode == ChainCode::kCeil) {
    const Floats whole = whole_of(x);
    return with_sign((whole < x) ? whole + 1.0f : whole, x);
  }
  if constexpr (kCode == ChainCode::kRound) return whole_of(x);
  if constexpr (kCode == ChainCode::kSin) return sin_of(x);
  if constexpr (kCode == ChainCode::kCos) return cos_of(x);
  if constexpr (kCode == ChainCode::kSquare) return x * x;
  // As torch has a third power on the CPU: both products of bfloat16 are rounded, of float16 the last one.
  if constexpr (kCode == ChainCode::kCube && kType == Real::kBFloat16) return rounded<kType>(x * x) * x;
  if constexpr (kCode == ChainCode::kCube) return x * x * x;
  if constexpr (kCode == ChainCode::kSoftplus) return (x > 40.0f) ? x : log1p_of(exp_of(x));
  if constexpr (kCode == ChainCode::kSoftsign) return x / (size_of(x) + 1.0f);
  if constexpr (kCode == ChainCode::kMish) return mish_of(x);
  if constexpr (kCode == ChainCode::kClip) {
    return nan_first(nan_first(nan_first(within(x, y, z), z), y), x);
  }
  if constexpr (kCode == ChainCode::kLeakyRelu) return (x > none) ? x : x * y;
  if constexpr (kCode == ChainCode::kElu) return (x >= none) ? x : expm1_of(x) * y;
  if constexpr (kCode == ChainCode::kHardSigmoid) return within(product_of(x, y) + z, none, one);
  if constexpr (kCode == ChainCode::kHardSwish) return x * within(x + 3.0f, none, none + 6.0f) / 6.0f;
  if constexpr (kCode == ChainCode::kGeluErf) return x * 0.5f * (1.0f + near_erf(x * 0.70710678f));
  // (1 + tanh(u)) / 2 is the sigmoid of 2u.
  if constexpr (kCode == ChainCode::kGeluTanh)
    return x * sigmoid_of(x * (1.59576912f + 0.0713548163f * x * x));
  if constexpr (kCode == ChainCode::kSilu) return x / (1.0f + exp_of(-x));
}

}  // namespace
