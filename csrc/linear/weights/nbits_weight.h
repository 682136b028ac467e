#pragma once

#include <cstdint>

#include "core/real.h"
#include "linear/weights/weights.h"

namespace tos {

// What kernels of a device know of a QuantizedWeight, see weights.h. A block has a power of two of numbers,
// and everything within a row can be counted by an int.
struct NbitsWeight {
  const uint8_t* codes;
  const void* scales;
  const void* zeros;
  Real scale_type;
  Real zero_type;
  bool packed_zeros;
  int bits;
  int block_shift;  // two to the power of this are the numbers of a block
  int blocks;
  int columns;
  int64_t rows;
};

constexpr int64_t kMostNbitsColumns = 1 << 30;

// `columns` are no more than kMostNbitsColumns.
inline NbitsWeight nbits_weight_of(const QuantizedWeight& from, int64_t rows, int64_t columns) {
  int shift = 0;
  while (int64_t{1} << shift < from.block_bytes * 8 / from.bits) ++shift;
  return {from.codes,
          from.scales,
          from.zeros,
          from.scale_type,
          from.zero_type,
          from.packed_zeros,
          from.bits,
          shift,
          static_cast<int>(from.blocks),
          static_cast<int>(columns),
          rows};
}

}  // namespace tos
