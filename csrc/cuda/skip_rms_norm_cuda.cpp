#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "launch.h"

namespace tos::cuda {

namespace {

void require_rows(const char* name, const at::Tensor& x, const at::Tensor& part, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(part.scalar_type() == x.scalar_type() && part.device() == x.device() &&
                        part.sizes() == shape && part.is_contiguous(),
                    "skip_rms_norm: ", name, " is not contiguous of shape ", shape, " and of the type of x");
}

// The result, the sum, and the inverse root of each row, which is empty unless it is wanted.
std::tuple<at::Tensor, at::Tensor, at::Tensor> skip_rms_norm(const at::Tensor& x,
                                                             const std::optional<at::Tensor>& skip,
                                                             const std::optional<at::Tensor>& bias,
                                                             const at::Tensor& gamma, double epsilon,
                                                             bool wants_inverse) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, "skip_rms_norm: x is ",
                    type, ", not float32, float16 or bfloat16");
  TORCH_CHECK_VALUE(x.dim() > 0 && x.is_contiguous(), "skip_rms_norm: x is not contiguous rows");
  const int64_t width = x.size(-1);
  require_rows("gamma", x, gamma, {width});
  if (skip.has_value()) require_rows("skip", x, *skip, x.sizes());
  if (bias.has_value()) require_rows("bias", x, *bias, {width});
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor y = at::empty(x.sizes(), x.options()), total = at::empty(x.sizes(), x.options());
  std::vector<int64_t> one = x.sizes().vec();
  one.back() = 1;
  if (!wants_inverse) one = {0};
  const at::Tensor inverse = at::empty(one, x.options().dtype(at::kFloat));
  if (x.numel() == 0) return {y, total, inverse};
  const auto address = [](const std::optional<at::Tensor>& part) {
    return part.has_value() ? part->const_data_ptr() : nullptr;
  };
  const RowNorm norm{x.const_data_ptr(),
                     address(skip),
                     address(bias),
                     gamma.const_data_ptr(),
                     total.mutable_data_ptr(),
                     y.mutable_data_ptr(),
                     wants_inverse ? inverse.mutable_data_ptr<float>() : nullptr,
                     x.numel() / width,
                     width,
                     static_cast<float>(epsilon)};
  const Real real = type == at::kFloat ? Real::kFloat : type == at::kHalf ? Real::kHalf : Real::kBFloat16;
  launch_skip_rms_norm(real, norm, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, total, inverse};
}

}  // namespace

}  // namespace tos::cuda

// There only in a library that holds code for CUDA devices.
TORCH_LIBRARY_FRAGMENT(torch_ort_session, m) {
  m.def(
      "skip_rms_norm(Tensor x, Tensor? skip, Tensor? bias, Tensor gamma, float epsilon, bool wants_inverse) "
      "-> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("skip_rms_norm", &tos::cuda::skip_rms_norm); }
