#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"
#include "sampling/sample_token/sample_token.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// See sample_token.cuh. There is at least one row.
void launch_sample_token(Real type, const void* scores, int64_t* state, int64_t* token, int64_t rows,
                         int64_t size, const SampleRules& rules, cudaStream_t stream);

}  // namespace tos::cuda
