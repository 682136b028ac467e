#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "elementwise/activate/activate.cuh"
#include "elementwise/activate/activate_launch.h"

namespace tos::cuda {

namespace {

template <class T>
void launch(const ActivateRows& rows, cudaStream_t stream) {
  const Geometry g = activate_geometry(rows);
  activate_kernel<T><<<g.grid, g.block, g.shared, stream>>>(rows);
}

}  // namespace

void launch_activate(Real type, const ActivateRows& rows, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch<float>(rows, stream);
    case Real::kHalf:
      return launch<c10::Half>(rows, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(rows, stream);
  }
}

}  // namespace tos::cuda
