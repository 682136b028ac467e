// Noting bad data in the validation word from many threads at once.
#pragma once

#include "core/device.cuh"
#include "core/word.h"

namespace tos::cuda {

__device__ inline void store(int32_t* word, word::Place place, int64_t value) {
  word[place] = static_cast<int32_t>(static_cast<uint64_t>(value));
  word[place + 1] = static_cast<int32_t>(static_cast<uint64_t>(value) >> 32);
}

// Notes a fault: see `word::note`. The thread whose flag is the first writes the rest too, so that node,
// value and bounds belong together. Nobody reads them before the kernel ends.
__device__ inline void note_from_thread(int32_t* word, word::Flag flag, int32_t node, int64_t value,
                                        int64_t low, int64_t high, int64_t count) {
  if (atomicCAS(word + word::kFlags, 0, static_cast<int32_t>(flag)) == 0) {
    word[word::kNode] = node;
    store(word, word::kValue, value);
    store(word, word::kLow, low);
    store(word, word::kHigh, high);
  }
  // As many as there are, not one more: the sum stays at the greatest int32.
  int32_t seen = atomicAdd(word + word::kCount, 0);
  for (int32_t before = seen + 1; before != seen;) {
    before = seen;
    const int64_t total = before + count;
    const int32_t sum = total < INT32_MAX ? static_cast<int32_t>(total) : INT32_MAX;
    seen = atomicCAS(word + word::kCount, before, sum);
  }
}

// What the threads of a block found together.
struct FirstBad {
  unsigned long long place;
  int count;
};

// Gathers in `shared` how many values are bad and the first place of one, of the threads that found `bad`
// ones, the first at `first`. Gives whether there are any, to every thread of the block alike.
__device__ inline bool found_in_block(int64_t bad, int64_t first, FirstBad& shared) {
  if (!__syncthreads_or(bad != 0)) return false;
  if (threadIdx.x == 0) shared = {~0ull, 0};
  __syncthreads();
  if (bad != 0) {
    atomicMin(&shared.place, static_cast<unsigned long long>(first));
    atomicAdd(&shared.count, static_cast<int>(bad));
  }
  __syncthreads();
  return true;
}

}  // namespace tos::cuda
