#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Addresses of rows of one type; see SkipRmsNorm in skip_rms_norm.cuh.
struct RowNorm {
  const void* x;
  const void* skip;
  const void* bias;
  const void* gamma;
  void* total;
  void* y;
  float* inverse;
  int64_t rows;
  int64_t width;
  float epsilon;
};

// There is at least one row of at least one element.
void launch_skip_rms_norm(Real type, const RowNorm& norm, cudaStream_t stream);

}  // namespace tos::cuda
