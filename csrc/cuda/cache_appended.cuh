// New rows put behind those of caches, each sample's where it says.
#pragma once

#include "device.cuh"
#include "tos/cache_append.h"
#include "tos/word.h"

namespace tos::cuda {

// As many as fit into the arguments of a launch.
constexpr int kCachesAtOnce = 32;

struct CacheAppends {
  CacheAppend one[kCachesAtOnce];
  const int32_t* word;  // or nullptr
};

// A block for each sample and head of keys of each cache.
inline Geometry cache_append_geometry(const CacheAppends& all, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pairs = all.one[i].batch * all.one[i].groups;
    most = pairs > most ? pairs : most;
  }
  return {dim3(static_cast<unsigned>(most), static_cast<unsigned>(count)), dim3(4 * kWarp)};
}

template <class Unit>
__device__ __forceinline__ void copy_row(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kUnit = static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = threadIdx.x; i < bytes / kUnit; i += blockDim.x) {
    reinterpret_cast<Unit*>(to)[i] = reinterpret_cast<const Unit*>(from)[i];
  }
}

__global__ void __launch_bounds__(4 * kWarp) cache_append_kernel(CacheAppends all) {
  const CacheAppend& one = all.one[blockIdx.y];
  const int64_t pair = blockIdx.x;
  // After bad data nothing is written any more.
  if (pair >= one.batch * one.groups || (all.word != nullptr && all.word[word::kFlags] != 0)) return;
  const int64_t b = pair / one.groups, g = pair % one.groups, start = one.start[b];
  if (start < 0) return;
  for (int64_t l = 0; l < one.length && start + l < one.rows; ++l) {
    char* to = static_cast<char*>(one.cache) + b * one.cache_batch + g * one.cache_head +
               (start + l) * one.cache_row;
    const char* from = static_cast<const char*>(one.fresh) + (pair * one.length + l) * one.row_bytes;
    const auto odd = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                     static_cast<uintptr_t>(one.row_bytes);
    if (odd % sizeof(uint32_t) == 0) {
      copy_row<uint32_t>(to, from, one.row_bytes);
    } else {
      copy_row<char>(to, from, one.row_bytes);
    }
  }
}

}  // namespace tos::cuda
