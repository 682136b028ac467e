#include "norm/skip_rms_norm/skip_rms_norm.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

template <class T>
const char* normalize(int64_t order, const void* x, const void* skip, const void* bias, const void* gamma,
                      void* total, void* y, float* inverse, int64_t rows, int64_t width, float epsilon) {
  return guarded([=] {
    const tos::cuda::SkipRmsNorm<T> args{static_cast<const T*>(x),
                                         static_cast<const T*>(skip),
                                         static_cast<const T*>(bias),
                                         static_cast<const T*>(gamma),
                                         static_cast<T*>(total),
                                         static_cast<T*>(y),
                                         inverse,
                                         rows,
                                         width,
                                         epsilon};
    const auto g = tos::cuda::skip_rms_norm_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::skip_rms_norm_kernel<T>, g.grid, g.block, g.shared,
                      args);
  });
}

}  // namespace

#define ENTRY(name, type)                                                                               \
  TOS_ENTRY skip_rms_norm_##name(int64_t order, const void* x, const void* skip, const void* bias,      \
                                 const void* gamma, void* total, void* y, float* inverse, int64_t rows, \
                                 int64_t width, float epsilon) {                                        \
    return normalize<type>(order, x, skip, bias, gamma, total, y, inverse, rows, width, epsilon);       \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
