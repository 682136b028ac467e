#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "sampling/sample_token/sample_token.h"

// What the op that draws tokens is given, on any device.
namespace tos {

inline SampleRules check_sample(const at::Tensor& scores, const at::Tensor& state, double temperature,
                                int64_t top_k, double top_p, int64_t keep, bool closed) {
  const at::ScalarType type = scores.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
                    "sample_token: scores are ", type, ", not float32, float16 or bfloat16");
  TORCH_CHECK_VALUE(scores.dim() == 2 && scores.size(1) > 0 && scores.size(1) < (int64_t{1} << 31),
                    "sample_token: scores are ", scores.sizes(), ", not [rows, tokens]");
  TORCH_CHECK_VALUE(state.scalar_type() == at::kLong && state.dim() == 1 && state.size(0) == 2 &&
                        state.is_contiguous() && state.device() == scores.device(),
                    "sample_token: the state is not int64 [2] on the scores' device");
  TORCH_CHECK_VALUE(temperature > 0.0, "sample_token: the temperature is ", temperature, ", not above 0");
  TORCH_CHECK_VALUE(top_k >= 0 && keep >= 1, "sample_token: top_k ", top_k, " is below 0, or keep ", keep,
                    " below 1");
  // As a float it could be 0 or infinite, which leaves no number of 0 / 0 or of -inf / inf.
  using Limits = std::numeric_limits<float>;
  const double held = std::clamp<double>(temperature, Limits::min(), Limits::max());
  return {static_cast<float>(held), top_k, top_p, keep, closed};
}

}  // namespace tos
