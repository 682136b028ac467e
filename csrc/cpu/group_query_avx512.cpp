// Attention over rows of a cache, for AVX-512.
#include "tos/group_query.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// Its own headers leave operands undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#include "tos/lanes_avx512.h"

namespace tos {

namespace {

using Wide = Lanes16;

Wide greater(const Wide& a, const Wide& b) { return {_mm512_max_ps(a.v, b.v)}; }

Wide power_of_two(const Wide& x) {
  const __m512i raised = _mm512_add_epi32(_mm512_cvtps_epi32(x.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(raised, 23))};
}

__m256 folded(const Wide& x) {
  return _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
}

void four_sums(const Wide* of, float* sums) {
  const __m256 first = _mm256_hadd_ps(folded(of[0]), folded(of[1]));
  const __m256 pairs = _mm256_hadd_ps(first, _mm256_hadd_ps(folded(of[2]), folded(of[3])));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}

}  // namespace

#include "tos/group_query_body.h"

void attend_rows_avx512(const CacheRows& rows, const CacheQueries& queries) { attend(rows, queries); }

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
