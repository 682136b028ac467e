// Attention over rows of a cache, for AVX-512.
#include "attention/gqa_decode/gqa_decode_rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#if !defined(__clang__)
// Its own headers leave operands undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "core/for_avx512.h"
// From here on for AVX-512.
#include "core/lanes_avx512.h"
// Behind the lanes.
#include "attention/gqa_decode/gqa_decode_lanes8.h"

namespace tos {

namespace {

using Wide = Lanes16;

Wide greater(const Wide& a, const Wide& b) { return {_mm512_max_ps(a.v, b.v)}; }

Wide power_of_two(const Wide& x) {
  const __m512i raised = _mm512_add_epi32(_mm512_cvtps_epi32(x.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(raised, 23))};
}

void four_sums(const Wide* of, float* sums) {
  Lanes8 folded[4];
  TOS_UNROLL
  for (int i = 0; i < 4; ++i) {
    folded[i] = {_mm256_add_ps(_mm512_castps512_ps256(of[i].v), _mm512_extractf32x8_ps(of[i].v, 1))};
  }
  four_sums(folded, sums);
}

Wide signed_bytes(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

Wide nibbles(const uint8_t* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
  const __m512i places = _mm512_set4_epi32(4, 0, 4, 0);
  // The lowest four bits of each lane pick a number.
  const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(twice, places), table)};
}

}  // namespace

#include "attention/gqa_decode/gqa_decode_body.h"

void attend_rows_avx512(const CacheRows& rows, const CacheQueries& queries) { attend(rows, queries); }

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
