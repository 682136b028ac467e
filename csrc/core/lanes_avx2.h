// Lanes of AVX2 with FMA and F16C; see lanes_default.h.
#pragma once

#include "core/lanes_default.h"

namespace {

struct Lanes8 {
  static constexpr int kWidth = 8;
  __m256 v;

  static Lanes8 all(float value) { return {_mm256_set1_ps(value)}; }
  static Lanes8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
  static Lanes8 load_half(const uint16_t* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  static Lanes8 load_bfloat(const uint16_t* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  void store(float* to) const { _mm256_storeu_ps(to, v); }

  Lanes8 operator+(const Lanes8& b) const { return {_mm256_add_ps(v, b.v)}; }
  Lanes8 operator*(const Lanes8& b) const { return {_mm256_mul_ps(v, b.v)}; }
  Lanes8 times_plus(const Lanes8& b, const Lanes8& c) const { return {_mm256_fmadd_ps(v, b.v, c.v)}; }
  float sum() const {
    __m128 part = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    part = _mm_add_ps(part, _mm_movehl_ps(part, part));
    return _mm_cvtss_f32(_mm_add_ss(part, _mm_movehdup_ps(part)));
  }

  template <int kBits>
  static void split(const uint8_t* from, Lanes8* numbers) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1), half = _mm256_set1_epi32(1 << (kBits - 1));
    TOS_UNROLL
    for (int p = 0; p < 8 / kBits; ++p) {
      const __m256i number = _mm256_and_si256(_mm256_srli_epi32(bytes, p * kBits), mask);
      numbers[p] = {_mm256_cvtepi32_ps(_mm256_sub_epi32(number, half))};
    }
  }
  template <int kBits>
  static Lanes8 in_order(uint64_t bytes) {
    if constexpr (kBits == 8) {
      return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))))};
    } else {
      const __m256i places =
          _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kBits));
      const __m256i moved = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(bytes)), places);
      return {_mm256_cvtepi32_ps(_mm256_and_si256(moved, _mm256_set1_epi32((1 << kBits) - 1)))};
    }
  }
};

struct Bytes32 {
  using Lanes = Lanes8;
  static constexpr int kWidth = 32;
  __m256i v;

  static Bytes32 load(const int32_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }

  template <int kBits>
  static void add(const uint8_t* codes, const int8_t* x, int p, Bytes32& total) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    const __m256i factor = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    if constexpr (kBits == 8) {
      // In halves: sums of two products of whole bytes do not fit into 16 bits.
      const __m256i mask = _mm256_set1_epi8(15);
      const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(all, mask), factor);
      const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(all, 4), mask), factor);
      total.v = _mm256_add_epi32(total.v, _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
      total.v = _mm256_add_epi32(total.v, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
    } else {
      const __m256i code =
          _mm256_and_si256(_mm256_srli_epi16(all, p * kBits), _mm256_set1_epi8((1 << kBits) - 1));
      const __m256i pairs = _mm256_maddubs_epi16(code, factor);
      total.v = _mm256_add_epi32(total.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
  }
  Lanes8 reals() const { return {_mm256_cvtepi32_ps(v)}; }

  struct Places {
    __m256i of;
    explicit Places(int64_t block_bytes) {
      alignas(32) int32_t place[8];
      for (int i = 0; i < 8; ++i) place[i] = static_cast<int32_t>(4 * i / block_bytes);
      of = _mm256_load_si256(reinterpret_cast<const __m256i*>(place));
    }
    Lanes8 spread(const float* from) const { return {_mm256_permutevar8x32_ps(_mm256_loadu_ps(from), of)}; }
  };
};

}  // namespace
