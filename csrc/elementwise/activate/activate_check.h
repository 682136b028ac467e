#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "elementwise/activate/activations.h"

// What the op that activates rows is given, on any device.
namespace tos {

// Rows of one stride; tensors that are not are copied.
struct Rows {
  at::Tensor held;
  int64_t stride;
};

inline Rows rows_of(const at::Tensor& x) {
  const int64_t width = x.size(-1);
  bool regular = x.stride(-1) == 1 || width == 1;
  int64_t stride = width, length = 1;
  for (int64_t axis = x.dim() - 2; axis >= 0 && regular; --axis) {
    if (x.size(axis) == 1) continue;
    if (length == 1) stride = x.stride(axis);
    regular = x.stride(axis) == stride * length;
    length *= x.size(axis);
  }
  if (regular) return {x, stride};
  return {x.contiguous(), width};
}

// Where in a row the gate and the other factor begin. Gelu gates the first half by the second one.
struct ActivateParts {
  int64_t gate;
  int64_t up;
};

inline ActivateParts parts_of(const at::Tensor& x, int64_t kind, bool halves) {
  if (!halves) return {0, 0};
  const int64_t half = x.size(-1) / 2;
  if (static_cast<Activation>(kind) == Activation::kSigmoid) return {0, half};
  return {half, 0};
}

// Of an element.
inline const void* address(const at::Tensor& tensor, int64_t place) {
  return static_cast<const char*>(tensor.const_data_ptr()) + place * tensor.element_size();
}

struct ActivateSizes {
  std::vector<int64_t> shape;  // of the result
  int64_t rows;
  int64_t width;
};

inline ActivateSizes check_activate(const at::Tensor& x, const std::optional<at::Tensor>& up,
                                    const std::optional<at::Tensor>& bias, int64_t kind, bool halves) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, "activate: x is ", type,
                    ", not float32, float16 or bfloat16");
  TORCH_CHECK_VALUE(x.dim() > 0, "activate: x has no rows");
  TORCH_CHECK_VALUE(kind >= 0 && kind < static_cast<int64_t>(Activation::kCount), "activate: ", kind,
                    " is no number of an activation");
  TORCH_CHECK_VALUE(!halves || (x.size(-1) % 2 == 0 && !up.has_value()),
                    "activate: halves are those of an even number of elements, without another factor");
  TORCH_CHECK_VALUE(!up.has_value() ||
                        (up->scalar_type() == type && up->device() == x.device() && up->sizes() == x.sizes()),
                    "activate: the other factor is not of the shape and the type of x");
  TORCH_CHECK_VALUE(
      !bias.has_value() || (bias->scalar_type() == type && bias->device() == x.device() && bias->dim() == 1 &&
                            bias->size(0) == x.size(-1) && bias->is_contiguous() && !up.has_value()),
      "activate: the bias is not a contiguous row of the type of x alone");
  ActivateSizes sizes{x.sizes().vec(), 0, halves ? x.size(-1) / 2 : x.size(-1)};
  sizes.shape.back() = sizes.width;
  sizes.rows = x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
  return sizes;
}

// What a kernel is given, and the tensors that it reads.
struct ActivateCall {
  Rows gates;
  Rows ups;
  ActivateRows rows;
};

// Of arguments that were checked, for a result that has elements.
inline ActivateCall activate_call(const ActivateSizes& sizes, const at::Tensor& x,
                                  const std::optional<at::Tensor>& up, const std::optional<at::Tensor>& bias,
                                  int64_t kind, bool halves, double alpha, double beta, double limit,
                                  bool rounded, const at::Tensor& y) {
  ActivateCall call{rows_of(x), rows_of(up.has_value() ? *up : x), {}};
  const ActivateParts parts = parts_of(x, kind, halves);
  const bool product = halves || up.has_value();
  call.rows = {address(call.gates.held, parts.gate),
               product ? address(call.ups.held, parts.up) : nullptr,
               bias.has_value() ? address(*bias, parts.gate) : nullptr,
               bias.has_value() ? address(*bias, parts.up) : nullptr,
               y.mutable_data_ptr(),
               call.gates.stride,
               call.ups.stride,
               sizes.rows,
               sizes.width,
               static_cast<Activation>(kind),
               static_cast<float>(alpha),
               static_cast<float>(beta),
               static_cast<float>(limit),
               rounded};
  return call;
}

}  // namespace tos
