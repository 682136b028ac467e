// One row times a weight of floats, at the pace at which memory gives the weight.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tos/reals.h"
#include "tos/weights.h"

namespace tos {

namespace {

// Elements of the weight that are worth a thread, and columns that one thread takes at least.
constexpr int64_t kGrain = 1 << 15;
constexpr int64_t kColumns = 64;

void check(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK_VALUE(is_real(x) && x.dim() > 0 && c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)) == 1,
                    "gemv: the first factor is not one row of floats");
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.scalar_type() == x.scalar_type(),
                    "gemv: the weight is not a matrix of the row's type");
  TORCH_CHECK_VALUE(weight.size(0) == x.numel(), "gemv: a row of ", x.numel(), " and a weight of ",
                    weight.size(0), " rows");
  TORCH_CHECK_VALUE(
      !bias.has_value() || (bias->scalar_type() == x.scalar_type() && bias->numel() == weight.size(1)),
      "gemv: the bias is not ", weight.size(1), " floats of the row's type");
}

std::vector<int64_t> shape_of(const at::Tensor& x, const at::Tensor& weight) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(1);
  return shape;
}

// y = x @ weight [K, N] in floats.
void multiply(const WeightKernels& kernels, const float* x, const at::Tensor& weight, float* y) {
  const int64_t rows = weight.size(0), columns = weight.size(1);
  const void* w = weight.const_data_ptr();
  const Real type = real_type(weight);
  const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(rows, 1), 1);
  if (weight.stride(0) == 1 && weight.stride(1) >= rows) {
    at::parallel_for(0, columns, grain, [&](int64_t begin, int64_t end) {
      kernels.dot(type, w, weight.stride(1), x, rows, begin, end, y);
    });
    return;
  }
  const int64_t groups = (columns + kColumns - 1) / kColumns;
  at::parallel_for(0, groups, (grain + kColumns - 1) / kColumns, [&](int64_t begin, int64_t end) {
    kernels.combine(type, w, weight.stride(0), x, rows, begin * kColumns, std::min(end * kColumns, columns),
                    y);
  });
}

at::Tensor& gemv_out(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     int64_t instructions, at::Tensor& out) {
  check(x, weight, bias);
  const WeightKernels& kernels = kernels_for(instructions);
  TORCH_CHECK_VALUE(
      out.scalar_type() == x.scalar_type() && out.sizes() == shape_of(x, weight) && out.is_contiguous(),
      "gemv: the result does not fit into what is given for it");
  const int64_t count = x.numel(), columns = weight.size(1);
  const bool laid = (weight.stride(0) == 1 && weight.stride(1) >= count) ||
                    (weight.stride(1) == 1 && weight.stride(0) >= columns);
  const at::Tensor dense = laid ? weight : weight.contiguous();
  const at::Tensor row = x.contiguous();
  std::vector<float> wide(static_cast<size_t>(count)), total(static_cast<size_t>(columns));
  with_reals(row, [&](const auto* from) { widen(from, count, wide.data()); });
  multiply(kernels, wide.data(), dense, total.data());
  const auto extra = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  with_reals(out, [&](const auto* typed) {
    using Kind = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    Kind* to = out.mutable_data_ptr<Kind>();
    const Kind* more = extra.has_value() ? extra->const_data_ptr<Kind>() : nullptr;
    for (int64_t n = 0; n < columns; ++n) {
      to[n] = static_cast<Kind>(more == nullptr ? total[n] : total[n] + static_cast<float>(more[n]));
    }
  });
  return out;
}

at::Tensor gemv(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                int64_t instructions) {
  check(x, weight, bias);
  at::Tensor out = at::empty(shape_of(x, weight), x.options().memory_format(at::MemoryFormat::Contiguous));
  return gemv_out(x, weight, bias, instructions, out);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("gemv", &tos::gemv);
  m.impl("gemv.out", &tos::gemv_out);
}
