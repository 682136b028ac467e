#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/report.h"
#include "index/check_index/check_index.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// Integers of so many bytes; those that are unsigned have one.
enum class Integer : int { kInt8 = 1, kInt16 = 2, kInt32 = 4, kInt64 = 8, kUint8 = 0 };

// Numbers that are checked, at least one, and where they go.
struct CheckedValues {
  Integer type;
  const void* from;
  int64_t* to;
  int64_t count;
};

// See check_index.cuh.
void launch_check_index(const CheckedValues& values, Wrapping rule, const Report& report,
                        cudaStream_t stream);
void launch_check_range(const CheckedValues& values, Within rule, const Report& report, cudaStream_t stream);

}  // namespace tos::cuda
