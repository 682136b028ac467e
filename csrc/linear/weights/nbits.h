#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <optional>

#include "core/reals.h"
#include "linear/weights/weights.h"

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

inline int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Activations in memory of their own.
struct Arranged {
  at::Tensor values, bytes, starts, scales, sums;
  Activations rows;

  Arranged(int64_t count, const QuantizedWeight& weight, bool coarse) {
    rows.width = rounded_up(weight.numbers(), kChunk);
    rows.padded_blocks = rounded_up(weight.blocks + kBlockPadding, kBlockPadding);
    const auto reals = [&](int64_t each) { return at::empty({count, each}, at::dtype(at::kFloat)); };
    sums = reals(rows.padded_blocks);
    if (coarse) {
      bytes = at::empty({count, rows.width}, at::dtype(at::kChar));
      starts = at::empty({count, rows.width / 4}, at::dtype(at::kInt));
      scales = reals(rows.padded_blocks);
    } else {
      values = reals(rows.width);
    }
    rows = from(0);
  }

  Activations from(int64_t row) const {
    Activations part = rows;
    part.sums = sums.mutable_data_ptr<float>() + row * rows.padded_blocks;
    part.values = values.defined() ? values.mutable_data_ptr<float>() + row * rows.width : nullptr;
    part.bytes = bytes.defined() ? bytes.mutable_data_ptr<int8_t>() + row * rows.width : nullptr;
    part.starts = starts.defined() ? starts.mutable_data_ptr<int32_t>() + row * rows.width / 4 : nullptr;
    part.scales = scales.defined() ? scales.mutable_data_ptr<float>() + row * rows.padded_blocks : nullptr;
    return part;
  }
};

inline double real_at(const void* from, Real type, int64_t i) {
  if (type == Real::kFloat) return static_cast<const float*>(from)[i];
  if (type == Real::kHalf) return static_cast<float>(static_cast<const at::Half*>(from)[i]);
  return static_cast<float>(static_cast<const at::BFloat16*>(from)[i]);
}

// Row `n` of the weight times the first `columns` activations, number by number.
inline float nbits_sum(const QuantizedWeight& weight, int64_t n, const float* x, int64_t columns) {
  const int each = 8 / weight.bits, mask = (1 << weight.bits) - 1;
  const int64_t block_size = weight.block_bytes * each;
  const auto packed = [&](const uint8_t* from, int64_t i) {
    return from[i / each] >> (i % each * weight.bits) & mask;
  };
  const auto zero_of = [&](int64_t block) -> double {
    if (weight.zeros == nullptr) return 1 << (weight.bits - 1);
    if (!weight.packed_zeros) return real_at(weight.zeros, weight.zero_type, n * weight.blocks + block);
    return packed(static_cast<const uint8_t*>(weight.zeros) + n * weight.zero_bytes(), block);
  };
  double sum = 0.0;
  for (int64_t k = 0; k < columns; ++k) {
    const int64_t block = k / block_size;
    const double scale = real_at(weight.scales, weight.scale_type, n * weight.blocks + block);
    sum += (packed(weight.codes + n * weight.row_bytes(), k) - zero_of(block)) * scale * x[k];
  }
  return static_cast<float>(sum);
}

// Takes the sums that are not finite again, of rows `begin` to `end` of the weight: the kernels take zeros
// and numbers apart, and do not tell an infinite sum from one that is no number. `x` is finite.
inline void mend_sums(const QuantizedWeight& weight, const float* x, int64_t columns, int64_t begin,
                      int64_t end, float* y) {
  for (int64_t n = begin; n < end; ++n) {
    if (!std::isfinite(y[n])) y[n] = nbits_sum(weight, n, x, columns);
  }
}

}  // namespace tos
