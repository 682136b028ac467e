#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/gqa_decode/gqa_decode.h"
#include "core/real.h"
#include "core/report.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// What the kernels of a step write for one another: the place of each sample, and for each query and part of
// the cache the greatest score, the sum of weights and the weighted values.
struct GqaScratch {
  int64_t* places;
  float* row_max;
  float* sum;
  float* total;
};

constexpr int64_t kGqaWidestHead = 256;

// See gqa_decode.cuh. There is at least one sample, and a head is no wider than kGqaWidestHead.
int64_t gqa_parts_of(const GqaDecode& step);
void launch_gqa_decode(Real type, const GqaDecode& step, const GqaScratch& scratch, const Report& report,
                       cudaStream_t stream);

}  // namespace tos::cuda
