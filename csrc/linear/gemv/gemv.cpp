// One row times a weight of floats, at the pace at which memory gives the weight.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/reals.h"
#include "core/shares.h"
#include "linear/gemv/gemv_check.h"
#include "linear/weights/weights.h"

namespace tos {

namespace {

// Columns of which a sum stays in the nearest cache while rows of the weight pass.
constexpr int64_t kTile = 4096;
constexpr int64_t kTogether = 8;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// y = x @ weight [K, N] in floats, of a weight whose columns lie one behind the other.
void multiply_columns(const WeightKernels& kernels, const float* x, const at::Tensor& weight, float* y) {
  const int64_t rows = weight.size(0), columns = weight.size(1), stride = weight.stride(1);
  const int64_t row_bytes = std::max<int64_t>(rows * weight.element_size(), 1);
  const int64_t each = rounded_up(share_of(columns * row_bytes) / row_bytes + 1, kTogether);
  const void* w = weight.const_data_ptr();
  each_share((columns + each - 1) / each, [&](int64_t i) {
    kernels.dot(real_type(weight), w, stride, x, rows, i * each, std::min((i + 1) * each, columns), y);
  });
}

// The same of a weight whose rows lie one behind the other: parts of the rows, tile by tile, and their sum.
void multiply_rows(const WeightKernels& kernels, const float* x, const at::Tensor& weight, float* y) {
  const int64_t rows = weight.size(0), columns = weight.size(1), stride = weight.stride(0);
  const int64_t tiles = std::max<int64_t>((columns + kTile - 1) / kTile, 1);
  const int64_t tile = std::max<int64_t>(rounded_up((columns + tiles - 1) / tiles, 64), 1);
  const int64_t row_bytes = tile * weight.element_size();
  const int64_t each = rounded_up(share_of(rows * row_bytes * tiles) / row_bytes + 1, kTogether);
  const int64_t parts = std::max<int64_t>((rows + each - 1) / each, 1);
  const char* w = static_cast<const char*>(weight.const_data_ptr());
  std::vector<float> sums(static_cast<size_t>(parts > 1 ? parts * columns : 0));
  float* all = parts > 1 ? sums.data() : y;
  each_share(parts * tiles, [&](int64_t i) {
    const int64_t part = i / tiles, from = i % tiles * tile, first = part * each;
    if (from >= columns) return;
    kernels.combine(real_type(weight), w + first * stride * weight.element_size(), stride, x + first,
                    std::min(each, rows - first), from, std::min(from + tile, columns), all + part * columns);
  });
  if (parts == 1) return;
  std::copy_n(all, columns, y);
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t n = 0; n < columns; ++n) y[n] += all[part * columns + n];
  }
}

at::Tensor& gemv_out(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     int64_t instructions, at::Tensor& out) {
  check_gemv(x, weight, bias);
  const WeightKernels& kernels = weights_for(instructions);
  check_gemv_out(x, weight, out);
  const int64_t count = x.numel(), columns = weight.size(1);
  const GemvWeight laid(weight);
  const at::Tensor row = x.contiguous();
  std::vector<float> wide(static_cast<size_t>(count)), total(static_cast<size_t>(columns));
  with_reals(row, [&](const auto* from) { widen(from, count, wide.data()); });
  (laid.turned ? multiply_columns : multiply_rows)(kernels, wide.data(), laid.held, total.data());
  const auto dense_bias = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  with_reals(out, [&](const auto* typed) {
    using Kind = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    Kind* to = out.mutable_data_ptr<Kind>();
    const Kind* bias_row = dense_bias.has_value() ? dense_bias->const_data_ptr<Kind>() : nullptr;
    for (int64_t n = 0; n < columns; ++n) {
      to[n] = static_cast<Kind>(bias_row == nullptr ? total[n] : total[n] + static_cast<float>(bias_row[n]));
    }
  });
  return out;
}

at::Tensor gemv(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                int64_t instructions) {
  check_gemv(x, weight, bias);
  at::Tensor out = at::empty(gemv_shape(x, weight), x.options().memory_format(at::MemoryFormat::Contiguous));
  return gemv_out(x, weight, bias, instructions, out);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("gemv", &tos::gemv);
  m.impl("gemv.out", &tos::gemv_out);
}
