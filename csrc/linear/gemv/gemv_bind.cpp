// One row times a weight of floats on a device, at the pace at which memory gives the weight.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "linear/gemv/gemv_check.h"
#include "linear/gemv/gemv_launch.h"

namespace tos::cuda {

namespace {

// See gemv.cpp.
at::Tensor& gemv_out(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     int64_t /*instructions*/, at::Tensor& out) {
  check_gemv(x, weight, bias);
  check_gemv_out(x, weight, out);
  TORCH_CHECK_VALUE(weight.device() == x.device() && out.device() == x.device() &&
                        (!bias.has_value() || bias->device() == x.device()),
                    "gemv: weight, bias or result are not on ", x.device());
  if (out.numel() == 0) return out;
  const c10::cuda::CUDAGuard guard(x.device());
  const GemvWeight weights(weight);
  const at::Tensor row = x.contiguous();
  const auto dense_bias = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  GemvAddresses from{row.const_data_ptr(),
                     weights.held.const_data_ptr(),
                     dense_bias.has_value() ? dense_bias->const_data_ptr() : nullptr,
                     out.mutable_data_ptr(),
                     nullptr,
                     weights.held.size(0),
                     weights.held.size(1),
                     weights.held.stride(weights.turned ? 1 : 0),
                     weights.turned};
  const Real type = real_type(x);
  at::Tensor sums;
  if (const int64_t parts = weights.turned ? 1 : gemv_parts_of(type, from); parts > 1) {
    sums = at::empty({parts, from.columns}, x.options().dtype(at::kFloat));
    from.sums = sums.mutable_data_ptr<float>();
  }
  launch_gemv(type, from, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor gemv(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                int64_t instructions) {
  check_gemv(x, weight, bias);
  at::Tensor out = at::empty(gemv_shape(x, weight), x.options().memory_format(at::MemoryFormat::Contiguous));
  return gemv_out(x, weight, bias, instructions, out);
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) {
  m.impl("gemv", &tos::cuda::gemv);
  m.impl("gemv.out", &tos::cuda::gemv_out);
}
