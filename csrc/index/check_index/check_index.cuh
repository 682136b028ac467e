// Numbers made safe in one pass, as check_index.cpp does it.
#pragma once

#include "core/device.cuh"
#include "core/word.cuh"
#include "index/check_index/check_index.h"

namespace tos::cuda {

constexpr int kCheckThreads = 256;

// One block up to 4,096 indices, so that the first bad one of a decoder's step is the one that is told.
inline Geometry check_index_geometry(int64_t count) {
  constexpr int64_t kEach = 4096;
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = blocks_for(count, kEach);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kCheckThreads)};
}

// `word` may be nullptr. Of several blocks that find bad numbers any one's first is told.
template <class Value, class Rule>
__global__ void __launch_bounds__(kCheckThreads)
    check_kernel(const Value* __restrict__ from, int64_t* __restrict__ to, int64_t count, Rule rule,
                 word::Flag flag, int32_t node, int32_t* word) {
  __shared__ FirstBad shared;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t bad = 0, first = count;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const int64_t before = bad;
    to[i] = rule.safe(static_cast<int64_t>(from[i]), bad);
    if (bad != before && first == count) first = i;
  }
  if (word == nullptr || !found_in_block(bad, first, shared)) return;
  if (threadIdx.x == 0) {
    const int64_t value = static_cast<int64_t>(from[shared.place]);
    note_from_thread(word, flag, node, value, rule.low(), rule.high(), shared.count);
  }
}

}  // namespace tos::cuda
