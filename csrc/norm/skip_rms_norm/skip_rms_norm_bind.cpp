#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "core/reals.h"
#include "norm/skip_rms_norm/skip_rms_norm_check.h"
#include "norm/skip_rms_norm/skip_rms_norm_launch.h"

namespace tos::cuda {

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The result, and the sum and the inverse root of each row, which are empty unless they are wanted.
Three skip_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& skip,
                    const std::optional<at::Tensor>& bias, const at::Tensor& gamma, double epsilon,
                    bool wants_total, bool wants_inverse, int64_t /*instructions*/) {
  const NormSizes sizes = check_norm(x, skip, bias, gamma, wants_total, wants_inverse);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor y = at::empty(x.sizes(), x.options()), total = at::empty(sizes.total, x.options());
  const at::Tensor inverse = at::empty(sizes.inverse, x.options().dtype(at::kFloat));
  if (x.numel() == 0) {
    clear_inverse(inverse);
    return {y, total, inverse};
  }
  const auto address = [](const std::optional<at::Tensor>& part) {
    return part.has_value() ? part->const_data_ptr() : nullptr;
  };
  const RowNorm norm{x.const_data_ptr(),
                     address(skip),
                     address(bias),
                     gamma.const_data_ptr(),
                     wants_total ? total.mutable_data_ptr() : nullptr,
                     y.mutable_data_ptr(),
                     wants_inverse ? inverse.mutable_data_ptr<float>() : nullptr,
                     x.numel() / x.size(-1),
                     x.size(-1),
                     static_cast<float>(epsilon)};
  const Real real = real_type(x);
  launch_skip_rms_norm(real, norm, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, total, inverse};
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("skip_rms_norm", &tos::cuda::skip_rms_norm); }
