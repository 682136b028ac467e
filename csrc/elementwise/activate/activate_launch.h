#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"
#include "elementwise/activate/activations.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// See activate.cuh. There is at least one row of at least one element.
void launch_activate(Real type, const ActivateRows& rows, cudaStream_t stream);

}  // namespace tos::cuda
