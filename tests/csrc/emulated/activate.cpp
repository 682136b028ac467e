#include "elementwise/activate/activate.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

// `sizes` holds the strides of the gate and of the other factor, rows, width, the kind of activation and
// whether that is rounded; `numbers` holds alpha, beta and the limit.
template <class T>
const char* activate(int64_t order, const void* gate, const void* up, const void* gate_bias,
                     const void* up_bias, void* y, const int64_t* sizes, const float* numbers) {
  return guarded([=] {
    const tos::ActivateRows args{
        gate,       up,         gate_bias,  up_bias,      y,
        sizes[0],   sizes[1],   sizes[2],   sizes[3],     static_cast<tos::Activation>(sizes[4]),
        numbers[0], numbers[1], numbers[2], sizes[5] != 0};
    const auto g = tos::cuda::activate_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::activate_kernel<T>, g.grid, g.block, g.shared,
                      args);
  });
}

}  // namespace

#define ENTRY(name, type)                                                                               \
  TOS_ENTRY activate_##name(int64_t order, const void* gate, const void* up, const void* gate_bias,     \
                            const void* up_bias, void* y, const int64_t* sizes, const float* numbers) { \
    return activate<type>(order, gate, up, gate_bias, up_bias, y, sizes, numbers);                      \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
