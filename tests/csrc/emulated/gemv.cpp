#include "linear/gemv/gemv.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

void require(bool held, const char* what) {
  if (!held) throw host_cuda::LaunchError(what);
}

template <int kEach, class T>
void multiply(host_cuda::Order order, const tos::cuda::Gemv<T>& args, bool turned, int64_t expected) {
  if (turned) {
    const auto g = tos::cuda::gemv_columns_geometry(args);
    require(g.block.y == expected, "not as many columns of a block as were expected");
    host_cuda::launch(order, tos::cuda::gemv_columns_kernel<kEach, T>, g.grid, g.block, g.shared, args);
    return;
  }
  const auto parts = tos::cuda::gemv_parts<kEach>(args.rows, args.columns);
  require(parts.count == expected, "not as many parts as were expected");
  const auto g = tos::cuda::gemv_rows_geometry<kEach>(args.columns, parts);
  host_cuda::launch(order, tos::cuda::gemv_rows_kernel<kEach, T>, g.grid, g.block, g.shared, args, parts);
  if (parts.count == 1) return;
  const auto s = tos::cuda::gemv_sums_geometry(args);
  host_cuda::launch(order, tos::cuda::gemv_sums_kernel<T>, s.grid, s.block, s.shared, args, parts.count);
}

// `sizes` holds rows, columns and stride of the weight, whether it is turned, whether it is read in wide
// pieces, and how many columns of a turned one a block has, or how many parts the rows of another.
template <class T>
const char* gemv(int64_t order, const void* x, const void* weight, const void* bias, void* y, float* sums,
                 const int64_t* sizes) {
  return guarded([=] {
    const tos::cuda::Gemv<T> args{static_cast<const T*>(x),
                                  static_cast<const T*>(weight),
                                  static_cast<const T*>(bias),
                                  static_cast<T*>(y),
                                  sums,
                                  sizes[0],
                                  sizes[1],
                                  sizes[2]};
    const bool turned = sizes[3] != 0, wide = sizes[4] != 0;
    require(tos::cuda::gemv_is_wide(args, turned) == wide, "not the width that was expected");
    const host_cuda::Order how{order};
    if (wide) {
      multiply<tos::cuda::kGemvFloats<T>>(how, args, turned, sizes[5]);
    } else {
      multiply<1>(how, args, turned, sizes[5]);
    }
  });
}

}  // namespace

#define ENTRY(name, type)                                                                            \
  TOS_ENTRY gemv_##name(int64_t order, const void* x, const void* weight, const void* bias, void* y, \
                        float* sums, const int64_t* sizes) {                                         \
    return gemv<type>(order, x, weight, bias, y, sums, sizes);                                       \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
