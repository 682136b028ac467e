// What attention over rows of a cache does with lanes of AVX2, also where others are wider. Included behind
// lanes_avx2.h; everything is local to the file that includes it.
#pragma once

namespace {

// The sum of the lanes of each of four.
inline void four_sums(const Lanes8* of, float* sums) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(of[0].v, of[1].v), _mm256_hadd_ps(of[2].v, of[3].v));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}

}  // namespace
