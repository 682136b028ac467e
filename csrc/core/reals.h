#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "core/real.h"

// Floats of a tensor, as kernels take them.
namespace tos {

inline bool is_real(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Of a tensor for which `is_real` holds.
inline Real real_type(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return Real::kFloat;
  return tensor.scalar_type() == at::kHalf ? Real::kHalf : Real::kBFloat16;
}

// Calls `visit` with a pointer of the tensor's own type.
template <typename Visit>
void with_reals(const at::Tensor& tensor, const Visit& visit) {
  if (tensor.scalar_type() == at::kFloat) {
    visit(tensor.const_data_ptr<float>());
  } else if (tensor.scalar_type() == at::kHalf) {
    visit(tensor.const_data_ptr<at::Half>());
  } else {
    visit(tensor.const_data_ptr<at::BFloat16>());
  }
}

// Gives whether all of them are finite.
template <typename T>
bool widen(const T* from, int64_t count, float* to) {
  // A product with zero is zero unless something is not finite.
  float check = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]);
    check += to[i] * 0.0f;
  }
  return check == 0.0f;
}

}  // namespace tos
