#include "index/check_index/check_index.cuh"

#include "entries.h"

namespace {

template <class Value, class Rule>
const char* check(int64_t order, const void* from, int64_t* to, int64_t count, Rule rule, int64_t flag,
                  int64_t node, int32_t* word) {
  return guarded([=] {
    const auto g = tos::cuda::check_index_geometry(count);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::check_kernel<Value, Rule>, g.grid, g.block,
                      g.shared, static_cast<const Value*>(from), to, count, rule,
                      static_cast<tos::word::Flag>(flag), static_cast<int32_t>(node), word);
  });
}

}  // namespace

#define ENTRIES(name, type)                                                                               \
  TOS_ENTRY check_index_##name(int64_t order, const void* from, int64_t* to, int64_t count, int64_t size, \
                               int64_t node, int32_t* word) {                                             \
    return check<type>(order, from, to, count, tos::Wrapping{size}, tos::word::kIndexOutOfRange, node,    \
                       word);                                                                             \
  }                                                                                                       \
  TOS_ENTRY check_range_##name(int64_t order, const void* from, int64_t* to, int64_t count, int64_t low,  \
                               int64_t high, int64_t flag, int64_t node, int32_t* word) {                 \
    return check<type>(order, from, to, count, tos::Within{low, high}, flag, node, word);                 \
  }

ENTRIES(int64, int64_t)
ENTRIES(int32, int32_t)
ENTRIES(int16, int16_t)
ENTRIES(int8, int8_t)
ENTRIES(uint8, uint8_t)
