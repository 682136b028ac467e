// Lanes of AVX-512 (F, BW, VL, DQ), and of VNNI where TOS_VNNI is defined; see lanes_default.h.
#pragma once

#include "core/lanes_avx2.h"

namespace {

struct Lanes16 {
  static constexpr int kWidth = 16;
  __m512 v;

  static Lanes16 all(float value) { return {_mm512_set1_ps(value)}; }
  static Lanes16 load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Lanes16 load_half(const uint16_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static Lanes16 load_bfloat(const uint16_t* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }

  Lanes16 operator+(const Lanes16& b) const { return {_mm512_add_ps(v, b.v)}; }
  Lanes16 operator*(const Lanes16& b) const { return {_mm512_mul_ps(v, b.v)}; }
  Lanes16 times_plus(const Lanes16& b, const Lanes16& c) const { return {_mm512_fmadd_ps(v, b.v, c.v)}; }
  float sum() const {
    return Lanes8{_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))}.sum();
  }

  template <int kBits>
  static void split(const uint8_t* from, Lanes16* numbers) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kBits == 8) {
      const __m128i moved = _mm_xor_si128(packed, _mm_set1_epi8(static_cast<char>(0x80)));
      numbers[0] = {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(moved))};
    } else {
      // The lowest four bits of each lane pick a number.
      const __m512 table = kBits == 4
                               ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
                               : _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
      const __m512i bytes = _mm512_cvtepu8_epi32(packed);
      TOS_UNROLL
      for (int p = 0; p < 8 / kBits; ++p) {
        numbers[p] = {_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, p * kBits), table)};
      }
    }
  }
};

struct Bytes64 {
  using Lanes = Lanes16;
  static constexpr int kWidth = 64;
  __m512i v;

  static Bytes64 load(const int32_t* from) { return {_mm512_loadu_si512(from)}; }

  template <int kBits>
  static void add(const uint8_t* codes, const int8_t* x, int p, Bytes64& total) {
    const __m512i all = _mm512_loadu_si512(codes);
    const __m512i factor = _mm512_loadu_si512(x);
#ifdef TOS_VNNI
    const __m512i code = kBits == 8
                             ? all
                             : _mm512_and_si512(_mm512_srli_epi16(all, static_cast<unsigned>(p * kBits)),
                                                _mm512_set1_epi8((1 << kBits) - 1));
    total.v = _mm512_dpbusd_epi32(total.v, code, factor);
#else
    if constexpr (kBits == 8) {
      // In halves: sums of two products of whole bytes do not fit into 16 bits.
      const __m512i mask = _mm512_set1_epi8(15);
      const __m512i low = _mm512_maddubs_epi16(_mm512_and_si512(all, mask), factor);
      const __m512i high = _mm512_maddubs_epi16(_mm512_and_si512(_mm512_srli_epi16(all, 4), mask), factor);
      total.v = _mm512_add_epi32(total.v, _mm512_madd_epi16(low, _mm512_set1_epi16(1)));
      total.v = _mm512_add_epi32(total.v, _mm512_madd_epi16(high, _mm512_set1_epi16(16)));
    } else {
      const __m512i code = _mm512_and_si512(_mm512_srli_epi16(all, static_cast<unsigned>(p * kBits)),
                                            _mm512_set1_epi8((1 << kBits) - 1));
      const __m512i pairs = _mm512_maddubs_epi16(code, factor);
      total.v = _mm512_add_epi32(total.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
#endif
  }
  Lanes16 reals() const { return {_mm512_cvtepi32_ps(v)}; }

  struct Places {
    __m512i of;
    explicit Places(int64_t block_bytes) {
      alignas(64) int32_t place[16];
      for (int i = 0; i < 16; ++i) place[i] = static_cast<int32_t>(4 * i / block_bytes);
      of = _mm512_load_si512(place);
    }
    Lanes16 spread(const float* from) const { return {_mm512_permutexvar_ps(of, _mm512_loadu_ps(from))}; }
  };
};

}  // namespace
