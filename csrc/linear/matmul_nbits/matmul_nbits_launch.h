#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"
#include "linear/weights/nbits_weight.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Rows that are multiplied by a weight of a few bits, at least one; `bias` may be nullptr.
struct NbitsRows {
  const void* x;
  const void* bias;
  Real bias_type;
  void* y;
  int64_t count;
};

// See matmul_nbits.cuh. The weight has at least one row and one column.
void launch_matmul_nbits(Real type, const NbitsWeight& weight, const NbitsRows& rows, cudaStream_t stream);
void launch_nbits_floats(Real type, const NbitsWeight& weight, void* out, cudaStream_t stream);

}  // namespace tos::cuda
