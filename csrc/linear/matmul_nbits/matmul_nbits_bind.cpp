// Products with weights of a few bits on a device: few rows read the weight as it lies, many multiply it as
// floats.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "linear/matmul_nbits/matmul_nbits_launch.h"
#include "linear/weights/nbits.h"

namespace tos::cuda {

namespace {

// Rows of activations that read the weight itself.
constexpr int64_t kFewRows = 8;

// See matmul_nbits.cpp; nothing is rounded to bytes here.
at::Tensor matmul_nbits(const at::Tensor& a, const at::Tensor& codes, const at::Tensor& scales,
                        const std::optional<at::Tensor>& zero_points, const std::optional<at::Tensor>& bias,
                        int64_t rows, int64_t bits, int64_t block_size, bool /*coarse*/,
                        int64_t /*instructions*/) {
  TORCH_CHECK_VALUE(is_real(a) && a.dim() > 0 && a.size(-1) > 0,
                    "matmul_nbits: the first factor is not rows of floats");
  TORCH_CHECK_VALUE(rows >= 0, "matmul_nbits: a weight of ", rows, " rows");
  TORCH_CHECK_VALUE(!bias.has_value() || (is_real(*bias) && bias->numel() == rows),
                    "matmul_nbits: the bias is not floats for ", rows, " rows");
  const auto here = [&](const at::Tensor& part) { return part.device() == a.device(); };
  TORCH_CHECK_VALUE(here(codes) && here(scales) && (!zero_points.has_value() || here(*zero_points)) &&
                        (!bias.has_value() || here(*bias)),
                    "matmul_nbits: the weight or the bias is not on ", a.device());
  TORCH_CHECK_VALUE(a.size(-1) <= kMostNbitsColumns, "matmul_nbits: rows of ", a.size(-1), " floats");
  const c10::cuda::CUDAGuard guard(a.device());
  const int64_t columns = a.size(-1);
  const NbitsSizes sizes{a.numel() / columns, columns, rows};
  at::Tensor packed = codes.contiguous();
  // The kernels take words of 8 bytes.
  if (reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 8 != 0) packed = packed.clone();
  const at::Tensor dense = a.contiguous(), scale = scales.contiguous();
  const auto zeros = zero_points.has_value() ? std::optional(zero_points->contiguous()) : std::nullopt;
  const auto dense_bias = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  const QuantizedWeight weight = nbits_weight(sizes, packed, scale, zeros, bits, block_size);
  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = rows;
  at::Tensor y = at::empty(shape, a.options().memory_format(at::MemoryFormat::Contiguous));
  if (y.numel() == 0) return y;
  const NbitsWeight numbers = nbits_weight_of(weight, rows, columns);
  const Real type = real_type(a);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  if (sizes.count <= kFewRows) {
    const NbitsRows product{
        dense.const_data_ptr(), dense_bias.has_value() ? dense_bias->const_data_ptr() : nullptr,
        dense_bias.has_value() ? real_type(*dense_bias) : type, y.mutable_data_ptr(), sizes.count};
    launch_matmul_nbits(type, numbers, product, stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
  }
  const at::Tensor floats = at::empty({rows, columns}, a.options());
  launch_nbits_floats(type, numbers, floats.mutable_data_ptr(), stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  at::Tensor flat = y.view({sizes.count, rows});
  at::mm_out(flat, dense.view({sizes.count, columns}), floats.t());
  if (dense_bias.has_value()) flat.add_(dense_bias->view({rows}));
  return y;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("matmul_nbits", &tos::cuda::matmul_nbits); }
