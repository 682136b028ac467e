#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "norm/skip_rms_norm/skip_rms_norm.cuh"
#include "norm/skip_rms_norm/skip_rms_norm_launch.h"

namespace tos::cuda {

namespace {

template <class T>
void launch(const RowNorm& norm, cudaStream_t stream) {
  const SkipRmsNorm<T> args{static_cast<const T*>(norm.x),
                            static_cast<const T*>(norm.skip),
                            static_cast<const T*>(norm.bias),
                            static_cast<const T*>(norm.gamma),
                            static_cast<T*>(norm.total),
                            static_cast<T*>(norm.y),
                            norm.inverse,
                            norm.rows,
                            norm.width,
                            norm.epsilon};
  const Geometry g = skip_rms_norm_geometry(args);
  skip_rms_norm_kernel<<<g.grid, g.block, g.shared, stream>>>(args);
}

}  // namespace

void launch_skip_rms_norm(Real type, const RowNorm& norm, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch<float>(norm, stream);
    case Real::kHalf:
      return launch<c10::Half>(norm, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(norm, stream);
  }
}

}  // namespace tos::cuda
