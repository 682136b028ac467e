// CUDA's own names for what host_cuda.h does, as far as kernels here use them.
#pragma once

#include "host_cuda.h"

#define threadIdx (host_cuda::machine.running->index)
#define blockIdx host_cuda::machine.block_index
#define blockDim host_cuda::machine.block_dim
#define gridDim host_cuda::machine.grid_dim

#define TOS_SITE(what, mask) \
  host_cuda::Site { what, __LINE__, mask }
#define __syncthreads() host_cuda::wait_for_block(TOS_SITE("__syncthreads", 0), 0)
#define __syncthreads_count(predicate) \
  static_cast<int>(host_cuda::wait_for_block(TOS_SITE("__syncthreads_count", 0), (predicate) != 0))
#define __syncthreads_or(predicate) \
  static_cast<int>(host_cuda::wait_for_block(TOS_SITE("__syncthreads_or", 0), (predicate) != 0) != 0)
#define __syncwarp(mask) host_cuda::wait_for_warp(TOS_SITE("__syncwarp", mask), 0, 0)
#define __ballot_sync(mask, predicate) \
  static_cast<unsigned>(               \
      host_cuda::wait_for_warp(TOS_SITE("__ballot_sync", mask), (predicate) != 0, host_cuda::kEverybody))
#define __shfl_sync(mask, value, source) \
  host_cuda::from_lane(TOS_SITE("__shfl_sync", mask), value, (source) % host_cuda::kWarpSize)
#define __shfl_xor_sync(mask, value, other) \
  host_cuda::from_lane(TOS_SITE("__shfl_xor_sync", mask), value, host_cuda::lane() ^ (other))
#define __shfl_down_sync(mask, value, distance) \
  host_cuda::from_lane(TOS_SITE("__shfl_down_sync", mask), value, host_cuda::lane_below(distance))

template <class T>
T atomicAdd(T* place, T value) {
  return host_cuda::atomically(place, [=](T before) { return before + value; });
}
template <class T>
T atomicOr(T* place, T value) {
  return host_cuda::atomically(place, [=](T before) { return before | value; });
}
template <class T>
T atomicMin(T* place, T value) {
  return host_cuda::atomically(place, [=](T before) { return value < before ? value : before; });
}
template <class T>
T atomicMax(T* place, T value) {
  return host_cuda::atomically(place, [=](T before) { return before < value ? value : before; });
}
template <class T>
T atomicCAS(T* place, T expected, T value) {
  return host_cuda::atomically(place, [=](T before) { return before == expected ? value : before; });
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __expf(float value) { return std::exp(value); }
