// Vectors of TOS_LANES floats, and how floats of a type become such and the other way about. Every function
// is also there for one float, for what is left of a row. Included once by each file of kernels, behind the
// pragma that sets its instructions: everything is local to that file, or the linker would mix the sets.
#pragma once

// Every file of kernels has these in front of its pragma as well.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/real.h"

namespace tos {

namespace {

#if defined(__GNUC__)
#define TOS_INLINE inline __attribute__((always_inline))
typedef float Floats __attribute__((vector_size(4 * TOS_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * TOS_LANES)));
typedef uint16_t Shorts __attribute__((vector_size(2 * TOS_LANES)));
#else
#define TOS_INLINE inline
typedef float Floats;
typedef int32_t Ints;
typedef uint16_t Shorts;
#endif

template <class V>
constexpr int64_t kWidthOf = static_cast<int64_t>(sizeof(V) / sizeof(float));

template <class To, class From>
TOS_INLINE To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class V>
TOS_INLINE V read(const void* from, int64_t at, int64_t bytes) {
  V value;
  std::memcpy(&value, static_cast<const char*>(from) + at * bytes, sizeof(value));
  return value;
}

template <class V>
TOS_INLINE void write(void* to, int64_t at, int64_t bytes, const V& value) {
  std::memcpy(static_cast<char*>(to) + at * bytes, &value, sizeof(value));
}

// To the nearest, of two the even one.
inline uint16_t half_of(float real) {
  const uint32_t bits = same_bits<uint32_t>(real), sign = (bits >> 16) & 0x8000u;
  uint32_t size = bits & 0x7fffffffu;
  if (size >= 0x47800000u) return static_cast<uint16_t>(sign | (size > 0x7f800000u ? 0x7e00u : 0x7c00u));
  // Below the least normal half the sum with 0.5 has the steps that halves have there.
  if (size < 0x38800000u) {
    const uint32_t sum = same_bits<uint32_t>(same_bits<float>(size) + 0.5f);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000u));
  }
  size += 0xc8000fffu + ((size >> 13) & 1u);
  return static_cast<uint16_t>(sign | (size >> 13));
}

// By a product that moves the exponent to where float32 has it; infinities and NaNs keep all exponent bits.
inline float real_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  if ((bits & 0x7c00u) == 0x7c00u) return same_bits<float>(sign | 0x7f800000u | magnitude);
  const float moved = same_bits<float>(magnitude) * same_bits<float>(0x77800000u);
  return same_bits<float>(sign | same_bits<uint32_t>(moved));
}

inline float real_of_bfloat(uint16_t bits) { return same_bits<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t bfloat_of(float real) {
  const uint32_t bits = same_bits<uint32_t>(real);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if defined(__GNUC__)
// The nearest floats of which bfloat16 drops nothing.
TOS_INLINE Floats near_bfloats(const Floats& reals) {
  const Ints bits = same_bits<Ints>(reals);
  const Ints rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & static_cast<int32_t>(0xffff0000);
  return same_bits<Floats>((reals == reals) ? rounded : Ints{} + 0x7fc00000);
}
// gcc 12 would widen and narrow vectors of AVX-512 by halves.
TOS_INLINE Shorts bfloats_of(const Floats& reals) {
  const Ints high = same_bits<Ints>(near_bfloats(reals)) >> 16;
#if TOS_LANES == 16
  return same_bits<Shorts>(_mm512_maskz_cvtepi32_epi16(0xffff, same_bits<__m512i>(high)));
#else
  return __builtin_convertvector(high, Shorts);
#endif
}
TOS_INLINE Floats reals_of_bfloats(const Shorts& bits) {
#if TOS_LANES == 16
  return same_bits<Floats>(same_bits<Ints>(_mm512_maskz_cvtepu16_epi32(0xffff, same_bits<__m256i>(bits)))
                           << 16);
#else
  return same_bits<Floats>(__builtin_convertvector(bits, Ints) << 16);
#endif
}

TOS_INLINE Shorts halves_of(const Floats& reals) {
#if TOS_LANES == 16
  // With a mask of all lanes: gcc 12 takes what stands for no mask as not initialized.
  return same_bits<Shorts>(
      _mm512_maskz_cvtps_ph(0xffff, same_bits<__m512>(reals), _MM_FROUND_TO_NEAREST_INT));
#elif TOS_LANES == 8
  return same_bits<Shorts>(_mm256_cvtps_ph(same_bits<__m256>(reals), _MM_FROUND_TO_NEAREST_INT));
#else
  const Ints bits = same_bits<Ints>(reals), size = bits & 0x7fffffff;
  const Ints small = same_bits<Ints>(same_bits<Floats>(size) + 0.5f) - 0x3f000000;
  const Ints usual = (size - 0x37fff001 + ((size >> 13) & 1)) >> 13;
  const Ints large = (size > 0x7f800000) ? Ints{} + 0x7e00 : Ints{} + 0x7c00;
  const Ints half = (size >= 0x47800000) ? large : (size < 0x38800000) ? small : usual;
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000), Shorts);
#endif
}
TOS_INLINE Floats reals_of_halves(const Shorts& bits) {
#if TOS_LANES == 16
  return same_bits<Floats>(_mm512_maskz_cvtph_ps(0xffff, same_bits<__m256i>(bits)));
#elif TOS_LANES == 8
  return same_bits<Floats>(_mm256_cvtph_ps(same_bits<__m128i>(bits)));
#else
  const Ints wide = __builtin_convertvector(bits, Ints), magnitude = (wide & 0x7fff) << 13;
  const Floats moved = same_bits<Floats>(magnitude) * same_bits<float>(0x77800000u);
  const Ints size = ((wide & 0x7c00) == 0x7c00) ? (magnitude | 0x7f800000) : same_bits<Ints>(moved);
  return same_bits<Floats>(size | ((wide & 0x8000) << 16));
#endif
}
#endif

// `count` elements from place `at` on, as many as V has.
template <class V, Real kType>
TOS_INLINE V load(const void* from, int64_t at) {
  if constexpr (kType == Real::kFloat) {
    return read<V>(from, at, 4);
  } else if constexpr (kWidthOf<V> == 1) {
    const uint16_t bits = read<uint16_t>(from, at, 2);
    return kType == Real::kHalf ? real_of_half(bits) : real_of_bfloat(bits);
#if defined(__GNUC__)
  } else if constexpr (kType == Real::kHalf) {
    return reals_of_halves(read<Shorts>(from, at, 2));
  } else {
    return reals_of_bfloats(read<Shorts>(from, at, 2));
#endif
  }
}

template <Real kType, class V>
TOS_INLINE void store(void* to, int64_t at, const V& value) {
  if constexpr (kType == Real::kFloat) {
    write(to, at, 4, value);
  } else if constexpr (kWidthOf<V> == 1) {
    write(to, at, 2, kType == Real::kHalf ? half_of(value) : bfloat_of(value));
#if defined(__GNUC__)
  } else if constexpr (kType == Real::kHalf) {
    write(to, at, 2, halves_of(value));
  } else {
    write(to, at, 2, bfloats_of(value));
#endif
  }
}

// What a store and a load would leave of a value.
template <Real kType, class V>
TOS_INLINE V rounded(const V& value) {
  if constexpr (kType == Real::kFloat) {
    return value;
#if defined(__GNUC__)
  } else if constexpr (kWidthOf<V> != 1 && kType == Real::kHalf) {
    return reals_of_halves(halves_of(value));
  } else if constexpr (kWidthOf<V> != 1) {
    return near_bfloats(value);
#endif
  } else {
    uint16_t kept[kWidthOf<V>];
    store<kType>(kept, 0, value);
    return load<V, kType>(kept, 0);
  }
}

TOS_INLINE float sum_of(const Floats& lanes) {
  float each[kWidthOf<Floats>], sum = 0.0f;
  std::memcpy(each, &lanes, sizeof(each));
  for (const float one : each) sum += one;
  return sum;
}

}  // namespace

}  // namespace tos
