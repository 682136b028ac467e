// Rows of activations, each times the weight of an expert of its own: only the weights of those that were
// chosen are read, as they lie.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/reals.h"
#include "core/shares.h"
#include "linear/expert_rows/expert_rows_check.h"
#include "linear/weights/nbits.h"
#include "linear/weights/weights.h"

namespace tos {

namespace {

// The experts of the rows; a kernel that chooses them chooses ones that exist.
std::vector<int64_t> chosen_of(const at::Tensor& experts, const Experts& sizes) {
  const at::Tensor dense = experts.contiguous();
  const int64_t* from = dense.const_data_ptr<int64_t>();
  for (int64_t p = 0; p < sizes.routes; ++p) {
    TORCH_CHECK_INDEX(from[p] >= 0 && from[p] < sizes.count, "expert_rows: expert ", from[p], " of ",
                      sizes.count);
  }
  return {from, from + sizes.routes};
}

// Calls `visit(p, begin, end)` for parts of the N rows of each route's expert, in shares.
template <typename Visit>
void each_part(const Experts& sizes, int64_t row_bytes, const Visit& visit) {
  const int64_t bytes = sizes.routes * sizes.rows * row_bytes;
  const int64_t wanted = share_of(bytes) / std::max<int64_t>(row_bytes, 1) + 1;
  const int64_t each = (wanted + kTogether - 1) / kTogether * kTogether;
  const int64_t parts = (sizes.rows + each - 1) / each;
  each_share(sizes.routes * parts, [&](int64_t i) {
    const int64_t begin = i % parts * each;
    visit(i / parts, begin, std::min(begin + each, sizes.rows));
  });
}

// The sums, with the biases of the experts, as the activations are stored.
at::Tensor delivered(const std::vector<float>& sums, const std::vector<int64_t>& chosen,
                     const std::optional<at::Tensor>& bias, const Experts& sizes, const at::Tensor& x) {
  at::Tensor y =
      at::empty({sizes.routes, sizes.rows}, x.options().memory_format(at::MemoryFormat::Contiguous));
  std::vector<float> bias_row(static_cast<size_t>(sizes.rows), 0.0f);
  const auto dense = bias.has_value() ? std::optional(bias->contiguous()) : std::nullopt;
  with_reals(y, [&](const auto* typed) {
    using Kind = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    Kind* to = y.mutable_data_ptr<Kind>();
    for (int64_t p = 0; p < sizes.routes; ++p) {
      if (dense.has_value()) {
        with_reals(*dense, [&](const auto* from) {
          widen(from + chosen[static_cast<size_t>(p)] * sizes.rows, sizes.rows, bias_row.data());
        });
      }
      for (int64_t n = 0; n < sizes.rows; ++n) {
        const size_t at = static_cast<size_t>(p * sizes.rows + n);
        to[at] = static_cast<Kind>(sums[at] + bias_row[static_cast<size_t>(n)]);
      }
    }
  });
  return y;
}

at::Tensor expert_rows(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, int64_t instructions) {
  const Experts sizes = experts_of(x, experts, weight, bias);
  TORCH_CHECK_VALUE(weight.scalar_type() == x.scalar_type() && weight.size(2) == sizes.columns,
                    "expert_rows: the weights are not ", sizes.columns, " columns of the type of x");
  const WeightKernels& kernels = weights_for(instructions);
  const std::vector<int64_t> chosen = chosen_of(experts, sizes);
  const at::Tensor dense = weight.contiguous(), rows = x.contiguous();
  std::vector<float> wide(static_cast<size_t>(sizes.routes * sizes.columns));
  std::vector<float> sums(static_cast<size_t>(sizes.routes * sizes.rows));
  with_reals(rows, [&](const auto* from) { widen(from, sizes.routes * sizes.columns, wide.data()); });
  const int64_t row_bytes = sizes.columns * dense.element_size();
  const char* all = static_cast<const char*>(dense.const_data_ptr());
  each_part(sizes, row_bytes, [&](int64_t p, int64_t begin, int64_t end) {
    const char* w = all + chosen[static_cast<size_t>(p)] * sizes.rows * row_bytes;
    kernels.dot(real_type(dense), w, sizes.columns, wide.data() + p * sizes.columns, sizes.columns, begin,
                end, sums.data() + p * sizes.rows);
  });
  return delivered(sums, chosen, bias, sizes, x);
}

// The weight without its first rows.
QuantizedWeight rows_from(QuantizedWeight weight, int64_t first) {
  const auto bytes = [](Real type) { return type == Real::kFloat ? 4 : 2; };
  weight.codes += first * weight.row_bytes();
  weight.scales = static_cast<const char*>(weight.scales) + first * weight.blocks * bytes(weight.scale_type);
  if (weight.zeros != nullptr) {
    const int64_t each = weight.packed_zeros ? weight.zero_bytes() : weight.blocks * bytes(weight.zero_type);
    weight.zeros = static_cast<const char*>(weight.zeros) + first * each;
  }
  return weight;
}

at::Tensor expert_rows_nbits(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& codes,
                             const at::Tensor& scales, const std::optional<at::Tensor>& zero_points,
                             const std::optional<at::Tensor>& bias, int64_t bits, int64_t block_size,
                             int64_t instructions) {
  const Experts sizes = experts_of(x, experts, codes, bias);
  const WeightKernels& kernels = weights_for(instructions);
  const std::vector<int64_t> chosen = chosen_of(experts, sizes);
  const at::Tensor dense = x.contiguous(), packed = codes.contiguous(), scale = scales.contiguous();
  const auto zeros = zero_points.has_value() ? std::optional(zero_points->contiguous()) : std::nullopt;
  // The experts' rows lie one behind the other, as those of one weight.
  const QuantizedWeight whole =
      nbits_weight({0, sizes.columns, sizes.count * sizes.rows}, packed, scale, zeros, bits, block_size);
  const Arranged arranged(sizes.routes, whole, false);
  std::vector<float> row(static_cast<size_t>(whole.numbers()));
  std::vector<char> finite(static_cast<size_t>(sizes.routes));
  for (int64_t p = 0; p < sizes.routes; ++p) {
    with_reals(dense, [&](const auto* from) {
      finite[static_cast<size_t>(p)] = widen(from + p * sizes.columns, sizes.columns, row.data());
    });
    kernels.arrange(whole, row.data(), arranged.from(p));
  }
  std::vector<float> sums(static_cast<size_t>(sizes.routes * sizes.rows));
  const int64_t width = arranged.rows.width;
  each_part(sizes, whole.row_bytes(), [&](int64_t p, int64_t begin, int64_t end) {
    const QuantizedWeight weight = rows_from(whole, chosen[static_cast<size_t>(p)] * sizes.rows);
    const Activations at = arranged.from(p);
    float* y = sums.data() + p * sizes.rows;
    if (finite[static_cast<size_t>(p)]) {
      std::vector<float> scratch(static_cast<size_t>(kTogether * at.padded_blocks));
      kernels.multiply(weight, at, 1, begin, end, y, sizes.rows, scratch.data());
      if (std::all_of(y + begin, y + end, [](float sum) { return std::isfinite(sum); })) return;
      std::vector<float> factors(static_cast<size_t>(sizes.columns));
      with_reals(dense,
                 [&](const auto* from) { widen(from + p * sizes.columns, sizes.columns, factors.data()); });
      mend_sums(weight, factors.data(), sizes.columns, begin, end, y);
      return;
    }
    // What is not finite says so by the numbers as they are, and not by sums that were taken apart.
    std::vector<float> floats(static_cast<size_t>(width));
    for (int64_t n = begin; n < end; ++n) {
      kernels.unpack(weight, n, n + 1, width, floats.data());
      kernels.dot(Real::kFloat, floats.data(), width, at.values, width, 0, 1, y + n);
    }
  });
  return delivered(sums, chosen, bias, sizes, x);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("expert_rows", &tos::expert_rows);
  m.impl("expert_rows_nbits", &tos::expert_rows_nbits);
}
