// Rows of activations times the weights of their experts on a device, where nobody waits to know who was
// chosen.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "linear/expert_rows/expert_rows_check.h"
#include "linear/expert_rows/expert_rows_launch.h"
#include "linear/weights/nbits.h"

namespace tos::cuda {

namespace {

// Checks what matters on a device alone: everything is there, and there is an expert that a wrong number can
// be taken for.
void check_device(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, const Experts& sizes) {
  TORCH_CHECK_VALUE(experts.device() == x.device() && weight.device() == x.device(),
                    "expert_rows: the experts or their weights are not on ", x.device());
  TORCH_CHECK_VALUE(!bias.has_value() || bias->device() == x.device(), "expert_rows: the bias is not on ",
                    x.device());
  TORCH_CHECK_INDEX(sizes.count > 0 || sizes.routes == 0, "expert_rows: no expert to choose");
}

at::Tensor result_of(const at::Tensor& x, const Experts& sizes) {
  return at::empty({sizes.routes, sizes.rows}, x.options().memory_format(at::MemoryFormat::Contiguous));
}

// Contiguous tensors, and the addresses in them; `y` has at least one element.
struct Routes {
  at::Tensor x, experts;
  std::optional<at::Tensor> bias;
  ExpertAddresses at;

  Routes(const at::Tensor& rows, const at::Tensor& chosen, const std::optional<at::Tensor>& expert_bias,
         const at::Tensor& y, const Experts& sizes)
      : x(rows.contiguous()),
        experts(chosen.contiguous()),
        bias(expert_bias.has_value() ? std::optional(expert_bias->contiguous()) : std::nullopt),
        at{x.const_data_ptr(),
           experts.const_data_ptr<int64_t>(),
           bias.has_value() ? bias->const_data_ptr() : nullptr,
           bias.has_value() ? real_type(*bias) : Real::kFloat,
           y.mutable_data_ptr(),
           sizes.routes,
           sizes.columns,
           sizes.rows,
           sizes.count} {}
};

// See expert_rows.cpp.
at::Tensor expert_rows(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, int64_t /*instructions*/) {
  const Experts sizes = experts_of(x, experts, weight, bias);
  TORCH_CHECK_VALUE(weight.scalar_type() == x.scalar_type() && weight.size(2) == sizes.columns,
                    "expert_rows: the weights are not ", sizes.columns, " columns of the type of x");
  check_device(x, experts, weight, bias, sizes);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor y = result_of(x, sizes);
  if (y.numel() == 0) return y;
  const at::Tensor dense = weight.contiguous();
  const Routes routes(x, experts, bias, y, sizes);
  launch_expert_rows(real_type(x), routes.at, dense.const_data_ptr(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

// See expert_rows.cpp.
at::Tensor expert_rows_nbits(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& codes,
                             const at::Tensor& scales, const std::optional<at::Tensor>& zero_points,
                             const std::optional<at::Tensor>& bias, int64_t bits, int64_t block_size,
                             int64_t /*instructions*/) {
  const Experts sizes = experts_of(x, experts, codes, bias);
  check_device(x, experts, codes, bias, sizes);
  TORCH_CHECK_VALUE(
      scales.device() == x.device() && (!zero_points.has_value() || zero_points->device() == x.device()),
      "expert_rows: the scales or the zero points are not on ", x.device());
  TORCH_CHECK_VALUE(sizes.columns <= kMostNbitsColumns, "expert_rows: rows of ", sizes.columns, " floats");
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor packed = codes.contiguous();
  // The kernels take words of 8 bytes.
  if (reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 8 != 0) packed = packed.clone();
  const at::Tensor scale = scales.contiguous();
  const auto zeros = zero_points.has_value() ? std::optional(zero_points->contiguous()) : std::nullopt;
  // The experts' rows lie one behind the other, as those of one weight.
  const int64_t rows = sizes.count * sizes.rows;
  const QuantizedWeight weight =
      nbits_weight({0, sizes.columns, rows}, packed, scale, zeros, bits, block_size);
  const at::Tensor y = result_of(x, sizes);
  if (y.numel() == 0) return y;
  const Routes routes(x, experts, bias, y, sizes);
  launch_expert_rows_nbits(real_type(x), routes.at, nbits_weight_of(weight, rows, sizes.columns),
                           c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) {
  m.impl("expert_rows", &tos::cuda::expert_rows);
  m.impl("expert_rows_nbits", &tos::cuda::expert_rows_nbits);
}
