// Sums over a block.
#pragma once

#include "core/device.cuh"

namespace tos::cuda {

__device__ __forceinline__ float warp_sum(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// The sum over all threads of a block of whole warps, in every thread. `partial` has a place for each warp;
// it may be used again after the next barrier.
__device__ __forceinline__ float block_sum(float value, float* partial) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? partial[lane] : 0.0f);
}

}  // namespace tos::cuda
