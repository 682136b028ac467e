#include "linear/expert_rows/expert_rows.cuh"
#include "linear/expert_rows/expert_rows_launch.h"

namespace tos::cuda {

namespace {

template <class T>
ExpertRoutes<T> routes_of(const ExpertAddresses& from) {
  return {static_cast<const T*>(from.x),
          from.experts,
          from.bias,
          from.bias_type,
          static_cast<T*>(from.y),
          from.routes,
          from.columns,
          from.rows,
          from.count};
}

template <class T>
void multiply(const ExpertAddresses& routes, const void* from, cudaStream_t stream) {
  const ExpertRoutes<T> args = routes_of<T>(routes);
  const T* weight = static_cast<const T*>(from);
  const Geometry g = expert_rows_geometry(args);
  if (expert_rows_are_wide(args, weight)) {
    expert_rows_kernel<kExpertFloats<T>><<<g.grid, g.block, g.shared, stream>>>(args, weight);
  } else {
    expert_rows_kernel<1><<<g.grid, g.block, g.shared, stream>>>(args, weight);
  }
}

template <class T>
void multiply_nbits(const ExpertAddresses& routes, const NbitsWeight& weight, cudaStream_t stream) {
  const ExpertRoutes<T> args = routes_of<T>(routes);
  const Geometry g = expert_rows_geometry(args);
  switch (weight.bits) {
    case 2:
      return expert_rows_nbits_kernel<2><<<g.grid, g.block, g.shared, stream>>>(args, weight);
    case 4:
      return expert_rows_nbits_kernel<4><<<g.grid, g.block, g.shared, stream>>>(args, weight);
    default:
      return expert_rows_nbits_kernel<8><<<g.grid, g.block, g.shared, stream>>>(args, weight);
  }
}

}  // namespace

void launch_expert_rows(Real type, const ExpertAddresses& routes, const void* weight, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return multiply<float>(routes, weight, stream);
    case Real::kHalf:
      return multiply<c10::Half>(routes, weight, stream);
    case Real::kBFloat16:
      return multiply<c10::BFloat16>(routes, weight, stream);
  }
}

void launch_expert_rows_nbits(Real type, const ExpertAddresses& routes, const NbitsWeight& weight,
                              cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return multiply_nbits<float>(routes, weight, stream);
    case Real::kHalf:
      return multiply_nbits<c10::Half>(routes, weight, stream);
    case Real::kBFloat16:
      return multiply_nbits<c10::BFloat16>(routes, weight, stream);
  }
}

}  // namespace tos::cuda
