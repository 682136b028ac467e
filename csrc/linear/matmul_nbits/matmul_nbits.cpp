// Products with weights of a few bits in blocks, which are read as they lie: never is there a whole weight of
// floats.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/reals.h"
#include "core/shares.h"
#include "linear/weights/nbits.h"
#include "linear/weights/weights.h"

namespace tos {

namespace {

// Rows of activations that read the weight itself; with more, multiplying costs more than unpacking a strip.
constexpr int64_t kFewRows = 16;
// Numbers that are unpacked at once: they stay in a cache.
constexpr int64_t kStrip = 1 << 18;
// Bytes of a weight that one thread reads for some rows of activations, before it reads them for the others.
constexpr int64_t kTileBytes = 1 << 15;
// Numbers that are worth a thread.
constexpr int64_t kGrain = 1 << 15;

// y[count, rows] from the weight itself.
void multiply_few(const WeightKernels& kernels, const QuantizedWeight& weight, const Arranged& x,
                  const NbitsSizes& sizes, float* y) {
  const int64_t tile = rounded_up(std::max<int64_t>(kTileBytes / weight.row_bytes(), 1), kTogether);
  const int64_t bytes = sizes.rows * weight.row_bytes();
  const int64_t each = rounded_up(share_of(bytes) / weight.row_bytes() + 1, kTogether);
  each_share((sizes.rows + each - 1) / each, [&](int64_t i) {
    const int64_t begin = i * each, end = std::min(begin + each, sizes.rows);
    std::vector<float> scratch(static_cast<size_t>(kTogether * x.rows.padded_blocks));
    const int64_t step = sizes.count > kRowsAtOnce ? tile : end - begin;
    for (int64_t from = begin; from < end; from += step) {
      const int64_t to = std::min(from + step, end);
      for (int64_t m = 0; m < sizes.count; m += kRowsAtOnce) {
        const int x_rows = static_cast<int>(std::min<int64_t>(kRowsAtOnce, sizes.count - m));
        kernels.multiply(weight, x.from(m), x_rows, from, to, y + m * sizes.rows, sizes.rows, scratch.data());
      }
    }
  });
}

// y[count, rows] strip by strip of the unpacked weight.
void multiply_many(const WeightKernels& kernels, const QuantizedWeight& weight, const Arranged& x,
                   const NbitsSizes& sizes, const at::Tensor& y) {
  const int64_t width = x.rows.width;
  const int64_t strip_rows = std::min(std::max<int64_t>(kStrip / width, 1), sizes.rows);
  const int64_t grain = std::max<int64_t>(kGrain / width, 1);
  const at::Tensor strip = at::empty({strip_rows, width}, at::dtype(at::kFloat));
  float* unpacked = strip.mutable_data_ptr<float>();
  for (int64_t from = 0; from < sizes.rows; from += strip_rows) {
    const int64_t part_rows = std::min(strip_rows, sizes.rows - from);
    at::parallel_for(0, part_rows, grain, [&](int64_t begin, int64_t end) {
      kernels.unpack(weight, from + begin, from + end, width, unpacked + begin * width);
    });
    at::Tensor part = y.narrow(1, from, part_rows);
    at::mm_out(part, x.values, strip.narrow(0, 0, part_rows).t());
  }
}

// y = product + bias, rounded to what y holds.
void deliver(const at::Tensor& product, const std::optional<at::Tensor>& bias, const NbitsSizes& sizes,
             const at::Tensor& y) {
  const float* from = product.const_data_ptr<float>();
  std::vector<float> bias_row(static_cast<size_t>(sizes.rows), 0.0f);
  if (bias.has_value()) {
    with_reals(*bias, [&](const auto* values) { widen(values, sizes.rows, bias_row.data()); });
  }
  with_reals(y, [&](const auto* typed) {
    using Kind = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    Kind* to = y.mutable_data_ptr<Kind>();
    for (int64_t m = 0; m < sizes.count; ++m, from += sizes.rows, to += sizes.rows) {
      for (int64_t n = 0; n < sizes.rows; ++n) to[n] = static_cast<Kind>(from[n] + bias_row[n]);
    }
  });
}

at::Tensor matmul_nbits(const at::Tensor& a, const at::Tensor& codes, const at::Tensor& scales,
                        const std::optional<at::Tensor>& zero_points, const std::optional<at::Tensor>& bias,
                        int64_t rows, int64_t bits, int64_t block_size, bool coarse, int64_t instructions) {
  TORCH_CHECK_VALUE(is_real(a) && a.dim() > 0, "matmul_nbits: the first factor is not a row of floats");
  TORCH_CHECK_VALUE(rows >= 0, "matmul_nbits: a weight of ", rows, " rows");
  TORCH_CHECK_VALUE(!bias.has_value() || (is_real(*bias) && bias->numel() == rows),
                    "matmul_nbits: the bias is not floats for ", rows, " rows");
  const WeightKernels& kernels = weights_for(instructions);
  const int64_t columns = a.size(-1);
  const NbitsSizes sizes{columns == 0 ? 0 : a.numel() / columns, columns, rows};
  TORCH_CHECK_VALUE(columns > 0, "matmul_nbits: the first factor has no columns");
  const at::Tensor dense = a.contiguous(), packed = codes.contiguous(), scale = scales.contiguous();
  const auto zeros = zero_points.has_value() ? std::optional(zero_points->contiguous()) : std::nullopt;
  const auto dense_bias = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  const QuantizedWeight weight = nbits_weight(sizes, packed, scale, zeros, bits, block_size);

  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = rows;
  at::Tensor y = at::empty(shape, a.options().memory_format(at::MemoryFormat::Contiguous));
  if (y.numel() == 0) return y;

  bool finite = true;
  std::vector<float> row(static_cast<size_t>(weight.numbers()));
  const auto widened = [&](int64_t m) {
    with_reals(dense,
               [&](const auto* from) { finite = widen(from + m * columns, columns, row.data()) && finite; });
    return row.data();
  };
  // What is not finite says so by the numbers as they are, and not by sums that were taken apart.
  for (int64_t m = 0; m < sizes.count && sizes.count <= kFewRows; ++m) widened(m);
  const bool few = sizes.count <= kFewRows && finite;
  const Arranged x(sizes.count, weight, few && coarse);
  for (int64_t m = 0; m < sizes.count; ++m) kernels.arrange(weight, widened(m), x.from(m));

  const bool direct = y.scalar_type() == at::kFloat;
  const at::Tensor product =
      direct ? y.view({sizes.count, rows}) : at::empty({sizes.count, rows}, a.options().dtype(at::kFloat));
  if (few) {
    float* sums = product.mutable_data_ptr<float>();
    multiply_few(kernels, weight, x, sizes, sums);
    const auto lost = [&](int64_t m) {
      return std::any_of(sums + m * rows, sums + (m + 1) * rows, [](float y) { return !std::isfinite(y); });
    };
    for (int64_t m = 0; m < sizes.count; ++m) {
      if (lost(m)) mend_sums(weight, widened(m), columns, 0, rows, sums + m * rows);
    }
  } else {
    multiply_many(kernels, weight, x, sizes, product);
  }
  if (!direct || dense_bias.has_value()) deliver(product, dense_bias, sizes, y);
  return y;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("matmul_nbits", &tos::matmul_nbits); }
