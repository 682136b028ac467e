// Attention over rows of a cache, for AVX2, FMA and F16C.
#include "attention/gqa_decode/gqa_decode_rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx2.h"
// From here on for AVX2.
#include "core/lanes_avx2.h"
// Behind the lanes.
#include "attention/gqa_decode/gqa_decode_lanes8.h"

namespace tos {

namespace {

using Wide = Lanes8;

Wide greater(const Wide& a, const Wide& b) { return {_mm256_max_ps(a.v, b.v)}; }

Wide power_of_two(const Wide& x) {
  const __m256i raised = _mm256_add_epi32(_mm256_cvtps_epi32(x.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(raised, 23))};
}

Wide signed_bytes(const int8_t* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}

Wide nibbles(const uint8_t* from) {
  uint32_t bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  return Wide::in_order<4>(bytes) + Wide::all(-8.0f);
}

}  // namespace

#include "attention/gqa_decode/gqa_decode_body.h"

void attend_rows_avx2(const CacheRows& rows, const CacheQueries& queries) { attend(rows, queries); }

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
