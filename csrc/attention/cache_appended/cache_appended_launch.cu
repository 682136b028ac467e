#include "attention/cache_appended/cache_appended.cuh"
#include "attention/cache_appended/cache_appended_launch.h"

namespace tos::cuda {

void launch_cache_append(const CacheAppend* caches, int64_t count, const int32_t* word, cudaStream_t stream) {
  for (int64_t from = 0; from < count; from += kCachesAtOnce) {
    const int64_t batch = count - from < kCachesAtOnce ? count - from : kCachesAtOnce;
    CacheAppends all{};
    for (int64_t i = 0; i < batch; ++i) all.one[i] = caches[from + i];
    all.word = word;
    const Geometry g = cache_append_geometry(all, batch);
    if (g.grid.x == 0) continue;
    cache_append_kernel<<<g.grid, g.block, g.shared, stream>>>(all);
  }
}

}  // namespace tos::cuda
