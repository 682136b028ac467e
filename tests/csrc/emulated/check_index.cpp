#include "check_index.cuh"

#include "entries.h"

namespace {

template <class Index>
const char* check(int64_t order, const void* from, int64_t* to, int64_t count, int64_t size, int64_t node,
                  int32_t* word) {
  return guarded([=] {
    const auto g = tos::cuda::check_index_geometry(count);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::check_index_kernel<Index>, g.grid, g.block,
                      g.shared, static_cast<const Index*>(from), to, count, size, static_cast<int32_t>(node),
                      word);
  });
}

}  // namespace

#define ENTRY(name, type)                                                                                 \
  TOS_ENTRY check_index_##name(int64_t order, const void* from, int64_t* to, int64_t count, int64_t size, \
                               int64_t node, int32_t* word) {                                             \
    return check<type>(order, from, to, count, size, node, word);                                         \
  }

ENTRY(int64, int64_t)
ENTRY(int32, int32_t)
ENTRY(int16, int16_t)
ENTRY(int8, int8_t)
ENTRY(uint8, uint8_t)
