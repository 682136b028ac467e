#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/rotary/head_strides.h"
#include "core/real.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Addresses of heads of one type; see Rotary in rotary.cuh.
struct TurnedHeads {
  const void* x;
  const void* cos;
  const void* sin;
  const int64_t* positions;
  void* y;
  HeadStrides from;
  HeadStrides to;
  int64_t tokens;
  int64_t length;
  int64_t heads;
  int64_t size;
  int64_t half;
  int64_t limit;
  bool counted;
  bool interleaved;
};

// There is at least one feature. `word` may be nullptr.
void launch_rotary(Real type, const TurnedHeads& heads, int32_t node, int32_t* word, cudaStream_t stream);

}  // namespace tos::cuda
