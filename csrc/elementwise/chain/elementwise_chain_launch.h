#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"
#include "elementwise/chain/chain.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// A chain of elementwise steps, and where its inputs, of one type, and its result lie; see
// elementwise_chain.cuh.
struct ChainedElements {
  ChainProgram program;
  ChainInput<int64_t> inputs[kChainInputs];
  void* out;
  int64_t count;
};

// There is at least one element.
void launch_elementwise_chain(Real type, const ChainedElements& chain, cudaStream_t stream);

}  // namespace tos::cuda
