#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "activate.cuh"
#include "launch.h"

namespace tos::cuda {

namespace {

template <class T>
void launch(const ActivateRows& rows, cudaStream_t stream) {
  const Activate<T> args{static_cast<const T*>(rows.gate),
                         static_cast<const T*>(rows.up),
                         static_cast<const T*>(rows.gate_bias),
                         static_cast<const T*>(rows.up_bias),
                         static_cast<T*>(rows.y),
                         rows.gate_stride,
                         rows.up_stride,
                         rows.rows,
                         rows.width,
                         rows.kind,
                         rows.alpha,
                         rows.beta,
                         rows.limit,
                         rows.rounded};
  const Geometry g = activate_geometry(args);
  activate_kernel<<<g.grid, g.block, g.shared, stream>>>(args);
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
