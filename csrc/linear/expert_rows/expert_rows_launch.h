#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/real.h"
#include "linear/weights/nbits_weight.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Addresses of rows and of what is made of them, of one type, and of the expert of each row; see
// ExpertRoutes in expert_rows.cuh.
struct ExpertAddresses {
  const void* x;
  const int64_t* experts;
  const void* bias;
  Real bias_type;
  void* y;
  int64_t routes;
  int64_t columns;
  int64_t rows;
  int64_t count;
};

// There is at least one element of `y`, and an expert. The weights of all experts lie one behind the other.
void launch_expert_rows(Real type, const ExpertAddresses& routes, const void* weight, cudaStream_t stream);
void launch_expert_rows_nbits(Real type, const ExpertAddresses& routes, const NbitsWeight& weight,
                              cudaStream_t stream);

}  // namespace tos::cuda
