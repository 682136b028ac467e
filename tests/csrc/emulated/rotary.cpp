#include "attention/rotary/rotary.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

// `strides` holds those of x and of y: sample, token, head. `sizes` holds tokens, length, heads, features,
// half of those that are turned, positions that there are, and whether they are counted and interleaved.
template <class T>
const char* rotate(int64_t order, const void* x, const void* cos, const void* sin, const int64_t* positions,
                   void* y, const int64_t* strides, const int64_t* sizes, int64_t node, int32_t* word) {
  return guarded([=] {
    const tos::cuda::Rotary<T> args{static_cast<const T*>(x),
                                    static_cast<const T*>(cos),
                                    static_cast<const T*>(sin),
                                    positions,
                                    static_cast<T*>(y),
                                    {strides[0], strides[1], strides[2]},
                                    {strides[3], strides[4], strides[5]},
                                    sizes[0],
                                    sizes[1],
                                    sizes[2],
                                    sizes[3],
                                    sizes[4],
                                    sizes[5],
                                    sizes[6] != 0,
                                    sizes[7] != 0};
    const auto g = tos::cuda::rotary_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::rotary_kernel<T>, g.grid, g.block, g.shared, args,
                      static_cast<int32_t>(node), word);
  });
}

}  // namespace

#define ENTRY(name, type)                                                                                  \
  TOS_ENTRY rotary_##name(int64_t order, const void* x, const void* cos, const void* sin,                  \
                          const int64_t* positions, void* y, const int64_t* strides, const int64_t* sizes, \
                          int64_t node, int32_t* word) {                                                   \
    return rotate<type>(order, x, cos, sin, positions, y, strides, sizes, node, word);                     \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
