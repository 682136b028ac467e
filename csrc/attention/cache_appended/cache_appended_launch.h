#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/cache_appended/cache_appended.h"

// Launched on a stream; nothing waits or allocates.
namespace tos::cuda {

// See cache_appended.cuh.
void launch_cache_append(const CacheAppend* caches, int64_t count, const int32_t* word, cudaStream_t stream);

}  // namespace tos::cuda
