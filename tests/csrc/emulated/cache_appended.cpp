#include "attention/cache_appended/cache_appended.cuh"

#include "entries.h"

TOS_ENTRY cache_append(int64_t order, void* first, const void* first_rows, void* second,
                       const void* second_rows, const int64_t* places, const int64_t* n,
                       const int32_t* word) {
  return guarded([=] {
    tos::cuda::CacheAppends all{};
    all.word = word;
    void* caches[] = {first, second};
    const void* fresh[] = {first_rows, second_rows};
    for (int i = 0; i < 2; ++i) {
      tos::CacheAppend& one = all.one[i];
      one.cache = caches[i], one.fresh = fresh[i], one.places = places;
      one.each = n[5];
      one.batch = n[0], one.groups = n[1], one.rows = n[2], one.length = n[3], one.row_bytes = n[4];
      one.cache_row = n[4], one.cache_head = n[2] * n[4], one.cache_batch = n[1] * n[2] * n[4];
    }
    const auto g = tos::cuda::cache_append_geometry(all, 2);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::cache_append_kernel, g.grid, g.block, g.shared,
                      all);
  });
}
