// Tokens drawn by their scores, of the heaviest ones: a block a row; see sample_token.h.
#pragma once

#include <cmath>

#include "core/device.cuh"
#include "sampling/sample_token/sample_token.h"

namespace tos::cuda {

constexpr int kSampleThreads = 256;

// A row of scores has `size` tokens. `state` holds the seed and the number of the draw.
template <class T>
struct SampleToken {
  const T* scores;
  const int64_t* state;
  int64_t* token;
  int64_t rows;
  int64_t size;
  SampleRules rules;
};

template <class T>
Geometry sample_token_geometry(const SampleToken<T>& args) {
  return {dim3(static_cast<unsigned>(args.rows)), dim3(kSampleThreads)};
}

template <class T>
__device__ __forceinline__ uint32_t weight_of(const SampleToken<T>& args, const T* scores, int64_t i,
                                              float score_max) {
  const float share = expf((static_cast<float>(scores[i]) - score_max) / args.rules.temperature);
  return static_cast<uint32_t>(share * kWeightUnits);
}

template <class T>
__global__ void __launch_bounds__(kSampleThreads) sample_token_kernel(SampleToken<T> args) {
  __shared__ unsigned long long weight[kSampleThreads];
  __shared__ uint32_t count[kSampleThreads];
  __shared__ float thread_max[kSampleThreads];
  __shared__ Boundary at;
  __shared__ double bound;
  __shared__ unsigned long long place;
  __shared__ int chosen;
  const T* scores = args.scores + static_cast<int64_t>(blockIdx.x) * args.size;
  const int me = static_cast<int>(threadIdx.x);
  float score_max = -INFINITY;
  bool all_numbers = true;
  for (int64_t i = me; i < args.size; i += kSampleThreads) {
    const float score = static_cast<float>(scores[i]);
    score_max = score > score_max ? score : score_max;
    all_numbers = all_numbers && score == score;
  }
  thread_max[me] = score_max;
  all_numbers = __syncthreads_or(!all_numbers) == 0;
  for (int i = 0; i < kSampleThreads; ++i) score_max = thread_max[i] > score_max ? thread_max[i] : score_max;
  if (!all_numbers || score_max == INFINITY || score_max == -INFINITY) {
    if (me == 0) args.token[blockIdx.x] = -1;
    return;
  }
  if (me == 0) at = Boundary{0, 0, 0, 0, 0};
  for (int digit = 0; digit < kDigits; ++digit) {
    weight[me] = 0;
    count[me] = 0;
    __syncthreads();
    for (int64_t i = me; i < args.size; i += kSampleThreads) {
      const uint32_t each = weight_of(args, scores, i, score_max);
      if (!begins_as(each, at, digit)) continue;
      atomicAdd(&count[digit_of(each, digit)], 1u);
      atomicAdd(&weight[digit_of(each, digit)], static_cast<unsigned long long>(each));
    }
    __syncthreads();
    if (me == 0) {
      if (digit == 0) {
        unsigned long long all = 0;
        for (int i = 0; i < kDigitValues; ++i) all += weight[i];
        bound = args.rules.top_p * static_cast<double>(all);
      }
      next_digit(args.rules, bound, digit, count, weight, at);
    }
    __syncthreads();
  }
  // Each thread has a stretch of the vocabulary: what it weighs, and how many of the boundary's weight it
  // has.
  const int64_t each = (args.size + kSampleThreads - 1) / kSampleThreads;
  const int64_t begin = me * each < args.size ? me * each : args.size;
  const int64_t end = begin + each < args.size ? begin + each : args.size;
  unsigned long long heavier = 0;
  uint32_t alike = 0;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t one = weight_of(args, scores, i, score_max);
    heavier += one > at.weight ? one : 0u;
    alike += one == at.weight;
  }
  weight[me] = heavier;
  count[me] = alike;
  __syncthreads();
  if (me == 0) {
    const double uniform =
        uniform_of(static_cast<uint64_t>(args.state[0]), static_cast<uint64_t>(args.state[1]), blockIdx.x);
    unsigned long long left = place_of(uniform, at.total());
    uint64_t seen = 0;
    chosen = 0;
    for (; chosen < kSampleThreads - 1; ++chosen) {
      const uint64_t last = seen + count[chosen];
      const uint64_t from = seen > at.first ? seen : at.first;
      const uint64_t to = last < at.first + at.kept ? last : at.first + at.kept;
      const unsigned long long here = weight[chosen] + (to > from ? (to - from) * at.weight : 0);
      if (left < here) break;
      left -= here;
      seen = last;
    }
    place = left;
    weight[0] = seen;
  }
  __syncthreads();
  if (me != chosen) return;
  uint64_t seen = weight[0], sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t one = weight_of(args, scores, i, score_max);
    sum += drawn_weight(one, at, seen);
    seen += one == at.weight;
    if (sum > place) {
      args.token[blockIdx.x] = i;
      return;
    }
  }
}

// Once all rows are drawn.
__global__ void sample_counted_kernel(int64_t* state) { state[1] += 1; }

}  // namespace tos::cuda
