// Attention over rows of a cache, for AVX2, FMA and F16C.
#include "tos/group_query.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#include "tos/lanes_avx2.h"

namespace tos {

namespace {

using Wide = Lanes8;

Wide greater(const Wide& a, const Wide& b) { return {_mm256_max_ps(a.v, b.v)}; }

Wide power_of_two(const Wide& x) {
  const __m256i raised = _mm256_add_epi32(_mm256_cvtps_epi32(x.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(raised, 23))};
}

void four_sums(const Wide* of, float* sums) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(of[0].v, of[1].v), _mm256_hadd_ps(of[2].v, of[3].v));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}

}  // namespace

#include "tos/group_query_body.h"

void attend_rows_avx2(const CacheRows& rows, const CacheQueries& queries) { attend(rows, queries); }

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
