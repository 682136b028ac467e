#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "core/reals.h"
#include "elementwise/activate/activate_check.h"
#include "elementwise/activate/activate_launch.h"

namespace tos::cuda {

namespace {

// See activate.cpp.
at::Tensor activate(const at::Tensor& x, const std::optional<at::Tensor>& up,
                    const std::optional<at::Tensor>& bias, int64_t kind, bool halves, double alpha,
                    double beta, double limit, bool rounded, int64_t /*instructions*/) {
  const ActivateSizes sizes = check_activate(x, up, bias, kind, halves);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(sizes.shape, x.options().memory_format(at::MemoryFormat::Contiguous));
  if (y.numel() == 0) return y;
  const ActivateCall call = activate_call(sizes, x, up, bias, kind, halves, alpha, beta, limit, rounded, y);
  const Real real = real_type(x);
  launch_activate(real, call.rows, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("activate", &tos::cuda::activate); }
