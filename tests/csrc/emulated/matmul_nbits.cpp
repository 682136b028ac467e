#include "linear/matmul_nbits/matmul_nbits.cuh"

#include <type_traits>

#include "entries.h"

namespace {

// `sizes` holds rows, columns, blocks and the size of a block of the weight, and the types of its scales, of
// its zero points, where packed bytes are kPacked, and of the bias.
constexpr int64_t kPacked = 3;

tos::NbitsWeight weight_of(int bits, const uint8_t* codes, const void* scales, const void* zeros,
                           const int64_t* sizes) {
  const bool packed = sizes[5] == kPacked;
  const tos::QuantizedWeight weight{codes,
                                    scales,
                                    zeros,
                                    static_cast<tos::Real>(sizes[4]),
                                    packed ? tos::Real::kFloat : static_cast<tos::Real>(sizes[5]),
                                    packed,
                                    bits,
                                    sizes[3] * bits / 8,
                                    sizes[2]};
  return tos::nbits_weight_of(weight, sizes[0], sizes[1]);
}

template <int kBits, class T>
const char* multiply(int64_t order, const void* x, const uint8_t* codes, const void* scales,
                     const void* zeros, const void* bias, void* y, const int64_t* sizes, int64_t count) {
  return guarded([=] {
    const tos::cuda::NbitsProduct<T> args{weight_of(kBits, codes, scales, zeros, sizes),
                                          static_cast<const T*>(x),
                                          bias,
                                          static_cast<tos::Real>(sizes[6]),
                                          static_cast<T*>(y),
                                          count};
    const auto run = [&]<int kRows>(std::integral_constant<int, kRows>) {
      const auto g = tos::cuda::matmul_nbits_geometry<kRows>(args);
      host_cuda::launch(host_cuda::Order{order}, tos::cuda::matmul_nbits_kernel<kBits, kRows, T>, g.grid,
                        g.block, g.shared, args);
    };
    if (count == 1) {
      run(std::integral_constant<int, 1>{});
    } else {
      run(std::integral_constant<int, tos::cuda::kNbitsRows>{});
    }
  });
}

template <int kBits, class T>
const char* unpack(int64_t order, const uint8_t* codes, const void* scales, const void* zeros, void* out,
                   const int64_t* sizes) {
  return guarded([=] {
    const auto weight = weight_of(kBits, codes, scales, zeros, sizes);
    const auto g = tos::cuda::nbits_floats_geometry(weight);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::nbits_floats_kernel<kBits, T>, g.grid, g.block,
                      g.shared, weight, static_cast<T*>(out));
  });
}

}  // namespace

#define ENTRIES(name, type, bits)                                                                          \
  TOS_ENTRY matmul_nbits_##name##_##bits(int64_t order, const void* x, const uint8_t* codes,               \
                                         const void* scales, const void* zeros, const void* bias, void* y, \
                                         const int64_t* sizes, int64_t count) {                            \
    return multiply<bits, type>(order, x, codes, scales, zeros, bias, y, sizes, count);                    \
  }                                                                                                        \
  TOS_ENTRY nbits_floats_##name##_##bits(int64_t order, const uint8_t* codes, const void* scales,          \
                                         const void* zeros, void* out, const int64_t* sizes) {             \
    return unpack<bits, type>(order, codes, scales, zeros, out, sizes);                                    \
  }

ENTRIES(float32, float, 2)
ENTRIES(float32, float, 4)
ENTRIES(float32, float, 8)
ENTRIES(float16, c10::Half, 2)
ENTRIES(float16, c10::Half, 4)
ENTRIES(float16, c10::Half, 8)
ENTRIES(bfloat16, c10::BFloat16, 2)
ENTRIES(bfloat16, c10::BFloat16, 4)
ENTRIES(bfloat16, c10::BFloat16, 8)
