// What kernel bodies are written in: CUDA's language, or what stands for it where they run on the CPU in
// tests.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "host_cuda.h"
#endif

// Before a loop whose arrays are to be registers.
#ifdef __CUDACC__
#define TOS_UNROLLED _Pragma("unroll")
#else
#define TOS_UNROLLED
#endif

namespace tos::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = ~0u;

// How many blocks of how many threads, and the bytes of shared memory that each block is given.
struct Geometry {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
};

// The bytes of shared memory that the geometry asked for.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char tos_shared[];
  return reinterpret_cast<T*>(tos_shared);
#else
  return static_cast<T*>(host_cuda::dynamic_shared());
#endif
}

// Elements side by side, at a multiple of all their bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Together {
  T each[kCount];
};

// In one access.
template <int kCount, class T>
__device__ __forceinline__ Together<T, kCount> taken_together(const T* from) {
#ifndef __CUDACC__
  host_cuda::require_aligned(from, sizeof(Together<T, kCount>));
#endif
  return *reinterpret_cast<const Together<T, kCount>*>(from);
}

template <int kCount, class T>
__device__ __forceinline__ void put_together(T* to, const Together<T, kCount>& elements) {
#ifndef __CUDACC__
  host_cuda::require_aligned(to, sizeof elements);
#endif
  *reinterpret_cast<Together<T, kCount>*>(to) = elements;
}

constexpr int64_t blocks_for(int64_t count, int64_t each) { return (count + each - 1) / each; }

}  // namespace tos::cuda
