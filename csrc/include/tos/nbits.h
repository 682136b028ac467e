#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tos/reals.h"
#include "tos/weights.h"

// What products with weights of a few bits are given, checked alike on every device.
namespace tos {

struct NbitsSizes {
  int64_t count;    // rows of activations
  int64_t columns;  // K
  int64_t rows;     // N
};

// What `a` is multiplied by, checked against the sizes that everything must have.
inline QuantizedWeight nbits_weight(const NbitsSizes& sizes, const at::Tensor& codes,
                                    const at::Tensor& scales, const std::optional<at::Tensor>& zeros,
                                    int64_t bits, int64_t block_size) {
  TORCH_CHECK_VALUE(bits == 2 || bits == 4 || bits == 8, "matmul_nbits: numbers of ", bits, " bits");
  TORCH_CHECK_VALUE(block_size >= 16 && (block_size & (block_size - 1)) == 0 && block_size <= 1 << 16,
                    "matmul_nbits: blocks of ", block_size, " numbers");
  QuantizedWeight weight{};
  weight.bits = static_cast<int>(bits);
  weight.blocks = (sizes.columns + block_size - 1) / block_size;
  weight.block_bytes = block_size * bits / 8;
  TORCH_CHECK_VALUE(codes.scalar_type() == at::kByte && codes.numel() == sizes.rows * weight.row_bytes(),
                    "matmul_nbits: the weight is not uint8 of ", sizes.rows, " rows of ", weight.row_bytes(),
                    " bytes");
  TORCH_CHECK_VALUE(is_real(scales) && scales.numel() == sizes.rows * weight.blocks,
                    "matmul_nbits: the scales are not floats for ", sizes.rows, " rows of ", weight.blocks,
                    " blocks");
  weight.codes = codes.const_data_ptr<uint8_t>();
  weight.scales = scales.const_data_ptr();
  weight.scale_type = real_type(scales);
  if (zeros.has_value()) {
    weight.packed_zeros = zeros->scalar_type() == at::kByte;
    const int64_t each = weight.packed_zeros ? weight.zero_bytes() : weight.blocks;
    TORCH_CHECK_VALUE((weight.packed_zeros || is_real(*zeros)) && zeros->numel() == sizes.rows * each,
                      "matmul_nbits: the zero points are neither floats for ", sizes.rows, " rows of ",
                      weight.blocks, " blocks nor packed bytes for them");
    weight.zeros = zeros->const_data_ptr();
    if (!weight.packed_zeros) weight.zero_type = real_type(*zeros);
  }
  return weight;
}

}  // namespace tos
