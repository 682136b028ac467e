#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <optional>
#include <vector>

#include "core/reals.h"

// What the product of one row with a weight of floats is given, checked alike on every device.
namespace tos {

inline void check_gemv(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
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

inline std::vector<int64_t> gemv_shape(const at::Tensor& x, const at::Tensor& weight) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(1);
  return shape;
}

inline void check_gemv_out(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out) {
  TORCH_CHECK_VALUE(
      out.scalar_type() == x.scalar_type() && out.sizes() == gemv_shape(x, weight) && out.is_contiguous(),
      "gemv: the result does not fit into what is given for it");
}

// A weight whose rows, or whose columns where it is turned, lie one behind the other; one that lies in
// another way is copied.
struct GemvWeight {
  at::Tensor held;
  bool turned;

  explicit GemvWeight(const at::Tensor& weight)
      : held(has_columns(weight) || has_rows(weight) ? weight : weight.contiguous()),
        turned(has_columns(held)) {}

 private:
  static bool has_columns(const at::Tensor& weight) {
    return weight.stride(0) == 1 && weight.stride(1) >= weight.size(0);
  }
  static bool has_rows(const at::Tensor& weight) {
    return weight.stride(1) == 1 && weight.stride(0) >= weight.size(1);
  }
};

}  // namespace tos
