#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "linear/gemv/gemv.cuh"
#include "linear/gemv/gemv_launch.h"

namespace tos::cuda {

namespace {

template <class T>
Gemv<T> gemv_at(const GemvAddresses& from) {
  return {static_cast<const T*>(from.x),
          static_cast<const T*>(from.weight),
          static_cast<const T*>(from.bias),
          static_cast<T*>(from.y),
          from.sums,
          from.rows,
          from.columns,
          from.stride};
}

template <class T>
GemvParts parts_of(const GemvAddresses& from) {
  const bool wide = gemv_is_wide(gemv_at<T>(from), from.turned);
  return wide ? gemv_parts<kGemvFloats<T>>(from.rows, from.columns) : gemv_parts<1>(from.rows, from.columns);
}

template <int kEach, class T>
void multiply(const Gemv<T>& args, bool turned, cudaStream_t stream) {
  if (turned) {
    const Geometry g = gemv_columns_geometry(args);
    gemv_columns_kernel<kEach><<<g.grid, g.block, g.shared, stream>>>(args);
    return;
  }
  const GemvParts parts = gemv_parts<kEach>(args.rows, args.columns);
  const Geometry g = gemv_rows_geometry<kEach>(args.columns, parts);
  gemv_rows_kernel<kEach><<<g.grid, g.block, g.shared, stream>>>(args, parts);
  if (parts.count == 1) return;
  const Geometry s = gemv_sums_geometry(args);
  gemv_sums_kernel<<<s.grid, s.block, s.shared, stream>>>(args, parts.count);
}

template <class T>
void launch(const GemvAddresses& from, cudaStream_t stream) {
  const Gemv<T> args = gemv_at<T>(from);
  if (gemv_is_wide(args, from.turned)) {
    multiply<kGemvFloats<T>>(args, from.turned, stream);
  } else {
    multiply<1>(args, from.turned, stream);
  }
}

}  // namespace

int64_t gemv_parts_of(Real type, const GemvAddresses& from) {
  switch (type) {
    case Real::kFloat:
      return parts_of<float>(from).count;
    case Real::kHalf:
      return parts_of<c10::Half>(from).count;
    case Real::kBFloat16:
      return parts_of<c10::BFloat16>(from).count;
  }
  return 1;
}

void launch_gemv(Real type, const GemvAddresses& from, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch<float>(from, stream);
    case Real::kHalf:
      return launch<c10::Half>(from, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(from, stream);
  }
}

}  // namespace tos::cuda
