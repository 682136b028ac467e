#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Addresses of a row, of a weight of the same type whose rows, or whose columns where it is `turned`, lie
// `stride` apart, and of the sums of `parts` of its rows where there are several; see gemv.cuh.
struct GemvAddresses {
  const void* x;
  const void* weight;
  const void* bias;
  void* y;
  float* sums;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  bool turned;
};

// In how many parts the rows of a weight that is not turned are multiplied.
int64_t gemv_parts_of(Real type, const GemvAddresses& from);
// There is at least one column.
void launch_gemv(Real type, const GemvAddresses& from, cudaStream_t stream);

}  // namespace tos::cuda
