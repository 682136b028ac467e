#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

// What the op that normalizes rows is given, on any device.
namespace tos {

// Shapes of the sum and of the inverse root, which have no elements where nobody wants them.
struct NormSizes {
  std::vector<int64_t> total;
  std::vector<int64_t> inverse;
};

inline bool fits(const at::Tensor& place, at::IntArrayRef sizes, at::ScalarType type) {
  return place.scalar_type() == type && place.sizes() == sizes && place.is_contiguous();
}

inline NormSizes check_norm(const at::Tensor& x, const std::optional<at::Tensor>& skip,
                            const std::optional<at::Tensor>& bias, const at::Tensor& gamma, bool wants_total,
                            bool wants_inverse) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, "skip_rms_norm: x is ",
                    type, ", not float32, float16 or bfloat16");
  TORCH_CHECK_VALUE(x.dim() > 0 && x.is_contiguous(), "skip_rms_norm: x is not contiguous rows");
  TORCH_CHECK_VALUE(!wants_total || skip.has_value() || bias.has_value(),
                    "skip_rms_norm: a sum is wanted of x alone");
  const int64_t width = x.size(-1);
  const auto require = [&](const char* name, const at::Tensor& part, at::IntArrayRef sizes) {
    TORCH_CHECK_VALUE(fits(part, sizes, type) && part.device() == x.device(), "skip_rms_norm: ", name,
                      " is not contiguous of shape ", sizes, " and of the type of x");
  };
  require("gamma", gamma, {width});
  if (skip.has_value()) require("skip", *skip, x.sizes());
  if (bias.has_value()) require("bias", *bias, {width});
  NormSizes sizes{{0}, {0}};
  if (wants_total) sizes.total = x.sizes().vec();
  if (wants_inverse) {
    sizes.inverse = x.sizes().vec();
    sizes.inverse.back() = 1;
  }
  return sizes;
}

// Rows without elements have no mean.
inline void clear_inverse(const at::Tensor& inverse) {
  if (inverse.numel() != 0) inverse.fill_(std::numeric_limits<float>::quiet_NaN());
}

}  // namespace tos
