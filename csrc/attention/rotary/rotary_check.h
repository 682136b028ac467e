#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "attention/rotary/head_strides.h"
#include "core/word.h"

// What the op that turns heads by the position of their token is given, on any device.
namespace tos {

struct RotarySizes {
  int64_t samples;
  int64_t length;
  int64_t heads;
  int64_t size;
  int64_t width;
  bool counted;  // one position of each sample's first token
  HeadStrides from;
  HeadStrides to;  // of a contiguous result

  int64_t tokens() const { return samples * length; }
};

inline RotarySizes check_rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                                const std::optional<at::Tensor>& positions, int64_t heads,
                                const std::optional<at::Tensor>& word) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, "rotary: x is ", type,
                    ", not float32, float16 or bfloat16");
  const bool flat = x.dim() == 3;
  TORCH_CHECK_VALUE((flat && heads > 0 && x.size(2) % heads == 0) || x.dim() == 4,
                    "rotary: x is neither [B, H, L, D] nor [B, L, H * D] of ", heads, " heads");
  RotarySizes sizes{x.size(0), x.size(flat ? 1 : 2), flat ? heads : x.size(1), 0, 2 * cos.size(-1), false, {},
                    {}};
  sizes.size = flat ? x.size(2) / heads : x.size(3);
  TORCH_CHECK_VALUE(x.stride(-1) == 1 || x.size(-1) == 1,
                    "rotary: the features of x do not lie side by side");
  const int64_t rows = sizes.length * sizes.size, all = sizes.heads * sizes.size;
  if (flat) {
    sizes.from = {x.stride(0), x.stride(1), sizes.size};
    sizes.to = {sizes.length * all, all, sizes.size};
  } else {
    sizes.from = {x.stride(0), x.stride(2), x.stride(1)};
    sizes.to = {sizes.heads * rows, sizes.size, rows};
  }
  for (const at::Tensor& angles : {cos, sin}) {
    TORCH_CHECK_VALUE(angles.scalar_type() == type && angles.device() == x.device() &&
                          angles.is_contiguous() && angles.sizes() == cos.sizes(),
                      "rotary: cosines and sines are not contiguous, of one shape and of the type of x");
  }
  TORCH_CHECK_VALUE(sizes.width <= sizes.size, "rotary: ", sizes.width, " of ", sizes.size,
                    " features cannot be turned");
  if (!positions.has_value()) {
    TORCH_CHECK_VALUE(cos.dim() == 3 && cos.size(0) == sizes.samples && cos.size(1) == sizes.length,
                      "rotary: without positions there are cosines for each token, not ", cos.sizes());
    return sizes;
  }
  TORCH_CHECK_VALUE(cos.dim() == 2, "rotary: the cosines are of rank ", cos.dim(), ", not 2");
  sizes.counted = positions->dim() == 1;
  const bool each =
      positions->dim() == 2 && positions->size(0) == sizes.samples && positions->size(1) == sizes.length;
  TORCH_CHECK_VALUE(positions->scalar_type() == at::kLong && positions->device() == x.device() &&
                        positions->is_contiguous() && (each || (sizes.counted && positions->numel() == 1)),
                    "rotary: positions are neither int64 [B, L] nor [1]");
  TORCH_CHECK_INDEX(cos.size(0) > 0 || sizes.tokens() == 0,
                    "the indexed axis is empty, so that no index is valid");
  TORCH_CHECK_VALUE(!word.has_value() || (word->device() == x.device() && word->is_contiguous() &&
                                          word->scalar_type() == at::kInt && word->numel() == word::kSize),
                    "rotary: the word is not an int32 tensor of ", int{word::kSize}, " elements");
  return sizes;
}

}  // namespace tos
