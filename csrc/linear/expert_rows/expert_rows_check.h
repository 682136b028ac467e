#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/reals.h"

// What products with the weights of experts are given, checked alike on every device.
namespace tos {

// What the projections of all experts have in common.
struct Experts {
  int64_t routes;   // rows of activations
  int64_t columns;  // K
  int64_t rows;     // N
  int64_t count;    // experts
};

// Checks all but the weights themselves, of which `weight` [count, rows, ...] is the main part.
inline Experts experts_of(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  TORCH_CHECK_VALUE(is_real(x) && x.dim() == 2 && x.size(1) > 0, "expert_rows: x is not rows of floats");
  TORCH_CHECK_VALUE(weight.dim() == 3, "expert_rows: the weights are not a matrix for each expert");
  const Experts sizes{x.size(0), x.size(1), weight.size(1), weight.size(0)};
  TORCH_CHECK_VALUE(
      experts.scalar_type() == at::kLong && experts.dim() == 1 && experts.size(0) == sizes.routes,
      "expert_rows: not one expert for each of ", sizes.routes, " rows");
  TORCH_CHECK_VALUE(
      !bias.has_value() ||
          (is_real(*bias) && bias->dim() == 2 && bias->size(0) == sizes.count && bias->size(1) == sizes.rows),
      "expert_rows: the bias is not ", sizes.rows, " floats for each of ", sizes.count, " experts");
  return sizes;
}

}  // namespace tos
