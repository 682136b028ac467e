#include "linear/expert_rows/expert_rows.cuh"

#include "entries.h"

namespace {

// `sizes` holds routes, columns, rows and experts and the type of the bias, then for packed weights the
// blocks of a row, the size of a block, and the types of the scales and of the zero points, where packed
// bytes are kPacked.
constexpr int64_t kPacked = 3;

template <class T>
tos::cuda::ExpertRoutes<T> routes_of(const void* x, const int64_t* experts, const void* bias, void* y,
                                     const int64_t* sizes) {
  return {static_cast<const T*>(x),
          experts,
          bias,
          static_cast<tos::Real>(sizes[4]),
          static_cast<T*>(y),
          sizes[0],
          sizes[1],
          sizes[2],
          sizes[3]};
}

template <class T>
const char* multiply(int64_t order, const void* x, const int64_t* experts, const void* from, const void* bias,
                     void* y, const int64_t* sizes, int64_t wide) {
  return guarded([=] {
    const auto args = routes_of<T>(x, experts, bias, y, sizes);
    const T* weight = static_cast<const T*>(from);
    const auto g = tos::cuda::expert_rows_geometry(args);
    if (tos::cuda::expert_rows_are_wide(args, weight) != (wide != 0)) {
      throw host_cuda::LaunchError("not the width that was expected");
    }
    const auto run = [&](auto* kernel) {
      host_cuda::launch(host_cuda::Order{order}, kernel, g.grid, g.block, g.shared, args, weight);
    };
    if (wide != 0) {
      run(tos::cuda::expert_rows_kernel<tos::cuda::kExpertFloats<T>, T>);
    } else {
      run(tos::cuda::expert_rows_kernel<1, T>);
    }
  });
}

template <int kBits, class T>
const char* multiply_nbits(int64_t order, const void* x, const int64_t* experts, const uint8_t* codes,
                           const void* scales, const void* zeros, const void* bias, void* y,
                           const int64_t* sizes) {
  return guarded([=] {
    const auto args = routes_of<T>(x, experts, bias, y, sizes);
    const bool packed = sizes[8] == kPacked;
    const tos::QuantizedWeight from{codes,
                                    scales,
                                    zeros,
                                    static_cast<tos::Real>(sizes[7]),
                                    packed ? tos::Real::kFloat : static_cast<tos::Real>(sizes[8]),
                                    packed,
                                    kBits,
                                    sizes[6] * kBits / 8,
                                    sizes[5]};
    const auto weight = tos::nbits_weight_of(from, sizes[3] * sizes[2], sizes[1]);
    const auto g = tos::cuda::expert_rows_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::expert_rows_nbits_kernel<kBits, T>, g.grid, g.block,
                      g.shared, args, weight);
  });
}

}  // namespace

#define NBITS_ENTRY(name, type, bits)                                                                \
  TOS_ENTRY expert_rows_##name##_##bits(int64_t order, const void* x, const int64_t* experts,        \
                                        const uint8_t* codes, const void* scales, const void* zeros, \
                                        const void* bias, void* y, const int64_t* sizes) {           \
    return multiply_nbits<bits, type>(order, x, experts, codes, scales, zeros, bias, y, sizes);      \
  }

#define ENTRIES(name, type)                                                                              \
  TOS_ENTRY expert_rows_##name(int64_t order, const void* x, const int64_t* experts, const void* weight, \
                               const void* bias, void* y, const int64_t* sizes, int64_t wide) {          \
    return multiply<type>(order, x, experts, weight, bias, y, sizes, wide);                              \
  }                                                                                                      \
  NBITS_ENTRY(name, type, 2)                                                                             \
  NBITS_ENTRY(name, type, 4)                                                                             \
  NBITS_ENTRY(name, type, 8)

ENTRIES(float32, float)
ENTRIES(float16, c10::Half)
ENTRIES(bfloat16, c10::BFloat16)
