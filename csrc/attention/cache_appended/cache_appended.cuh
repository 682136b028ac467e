// New rows put behind those of caches, each sample's where it says.
#pragma once

#include "attention/cache_appended/cache_appended.h"
#include "core/device.cuh"
#include "core/word.h"

namespace tos::cuda {

// As many as fit into the arguments of a launch.
constexpr int kCachesAtOnce = 32;

struct CacheAppends {
  CacheAppend one[kCachesAtOnce];
  const int32_t* word;  // or nullptr
};

// A block moves old rows by itself, which is why it has more threads where there may be such.
constexpr int kAppendThreads = 4 * kWarp, kMoveThreads = 16 * kWarp;

// What a thread takes at once of rows that move.
constexpr int kMovedAtOnce = 4;

// A block for each sample and head of keys of each cache.
inline Geometry cache_append_geometry(const CacheAppends& all, int64_t count) {
  int64_t most_pairs = 0;
  bool moves = false;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pairs = all.one[i].batch * all.one[i].groups;
    most_pairs = pairs > most_pairs ? pairs : most_pairs;
    moves = moves || all.one[i].each != 1;
  }
  return {dim3(static_cast<unsigned>(most_pairs), static_cast<unsigned>(count)),
          dim3(moves ? kMoveThreads : kAppendThreads)};
}

// Moves rows to the front of a cache. Whatever is written lies in front of all that is still to be read.
template <class Unit>
__device__ __forceinline__ void move_rows(char* to, int64_t from, int64_t count, int64_t row, int64_t bytes) {
  constexpr int64_t kUnit = static_cast<int64_t>(sizeof(Unit));
  const int64_t each = bytes / kUnit, all = count * each, threads = blockDim.x;
  for (int64_t base = 0; base < all; base += threads * kMovedAtOnce) {
    Unit held[kMovedAtOnce];
    TOS_UNROLLED
    for (int u = 0; u < kMovedAtOnce; ++u) {
      const int64_t i = base + u * threads + threadIdx.x;
      if (i < all) held[u] = *reinterpret_cast<const Unit*>(to + (from + i / each) * row + i % each * kUnit);
    }
    __syncthreads();
    TOS_UNROLLED
    for (int u = 0; u < kMovedAtOnce; ++u) {
      const int64_t i = base + u * threads + threadIdx.x;
      if (i < all) *reinterpret_cast<Unit*>(to + i / each * row + i % each * kUnit) = held[u];
    }
  }
  __syncthreads();
}

template <class Unit>
__device__ __forceinline__ void copy_row(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kUnit = static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = threadIdx.x; i < bytes / kUnit; i += blockDim.x) {
    reinterpret_cast<Unit*>(to)[i] = reinterpret_cast<const Unit*>(from)[i];
  }
}

__global__ void __launch_bounds__(kMoveThreads) cache_append_kernel(CacheAppends all) {
  const CacheAppend& one = all.one[blockIdx.y];
  const int64_t pair = blockIdx.x;
  // After bad data nothing is written any more.
  if (pair >= one.batch * one.groups || (all.word != nullptr && all.word[word::kFlags] != 0)) return;
  const AppendPlace place = append_place(one, pair / one.groups);
  char* head = static_cast<char*>(one.cache) + pair / one.groups * one.cache_batch +
               pair % one.groups * one.cache_head;
  if (place.kept > 0) {
    const auto odd = reinterpret_cast<uintptr_t>(head) | static_cast<uintptr_t>(one.row_bytes) |
                     static_cast<uintptr_t>(one.cache_row);
    if (odd % sizeof(Together<uint32_t, 4>) == 0) {
      move_rows<Together<uint32_t, 4>>(head, place.from, place.kept, one.cache_row, one.row_bytes);
    } else {
      move_rows<char>(head, place.from, place.kept, one.cache_row, one.row_bytes);
    }
  }
  for (int64_t l = place.start < 0 ? -place.start : 0; l < place.count && place.start + l < one.rows; ++l) {
    char* to = head + (place.start + l) * one.cache_row;
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
