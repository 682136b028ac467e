#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "expert_rows.cuh"
#include "launch.h"

namespace tos::cuda {

namespace {

template <class T>
ExpertRoutes<T> routes_of(const ExpertAddresses& from) {
  return {static_cast<const T*>(from.x),
          from.experts,
          static_cast<const T*>(from.bias),
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
void multiply_nbits(const ExpertAddresses& routes, const NbitsAddresses& from, cudaStream_t stream) {
  const ExpertRoutes<T> args = routes_of<T>(routes);
  const NbitsWeight<T> weight = nbits_weight_at<T>(from);
  const Geometry g = expert_rows_geometry(args);
  if (from.bits == 4) {
    expert_rows_nbits_kernel<4><<<g.grid, g.block, g.shared, stream>>>(args, weight);
  } else {
    expert_rows_nbits_kernel<8><<<g.grid, g.block, g.shared, stream>>>(args, weight);
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

void launch_expert_rows_nbits(Real type, const ExpertAddresses& routes, const NbitsAddresses& weight,
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
