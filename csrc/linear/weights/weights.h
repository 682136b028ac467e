#pragma once

#include <cstddef>
#include <cstdint>

#include "core/instructions.h"
#include "core/real.h"

// Products with weights that one step reads once, on raw pointers. Each set of instructions has a table of
// its own; none of these functions allocates or throws, and none reads outside of what it is given.
namespace tos {

// Numbers of a few bits [rows, blocks, block_bytes], the lowest bits of a byte first. A number counts
// `(number - zero) * scale`, with a scale and a zero for each block.
struct QuantizedWeight {
  const uint8_t* codes;
  const void* scales;  // [rows, blocks]
  const void* zeros;   // reals [rows, blocks], or packed bytes [rows, zero_bytes]; nullptr is half the range
  Real scale_type;
  Real zero_type;
  bool packed_zeros;
  int bits;  // 2, 4 or 8
  int64_t block_bytes;
  int64_t blocks;

  int64_t row_bytes() const { return blocks * block_bytes; }
  int64_t numbers() const { return row_bytes() * 8 / bits; }
  int64_t zero_bytes() const { return (blocks * bits + 7) / 8; }
};

// Rows of activations in the order in which a table reads weights.
struct Activations {
  float* values;    // [rows, width] for products in floats
  int8_t* bytes;    // [rows, width] for products of bytes
  int32_t* starts;  // [rows, width / 4], where sums of products of bytes start
  float* scales;    // [rows, padded_blocks] of the bytes
  float* sums;      // [rows, padded_blocks] of each block
  int64_t width;    // a multiple of kChunk
  int64_t padded_blocks;
};

// Numbers that a width is rounded up to: those in the widest chunk of bytes of the fewest bits.
constexpr int64_t kChunk = 256;
// Entries behind the last block that may be read, as zeros.
constexpr int64_t kBlockPadding = 32;
// Rows of activations that are multiplied at once at most.
constexpr int kRowsAtOnce = 4;
// Rows of a weight that are read at once at most.
constexpr int kTogether = 4;

struct WeightKernels {
  // Brings one row of activations, zeros behind the last column, into the order of this table: into `values`
  // and `sums`, or, when `bytes` is set, into `bytes`, `starts`, `scales` and `sums`.
  void (*arrange)(const QuantizedWeight& weight, const float* x, Activations row);

  // y[m * y_stride + n] for rows `begin` to `end` of the weight and `count` rows of activations, at most
  // kRowsAtOnce. `scratch` has kTogether * padded_blocks zeros. By bytes when `x.bytes` is set.
  void (*multiply)(const QuantizedWeight& weight, const Activations& x, int count, int64_t begin, int64_t end,
                   float* y, int64_t y_stride, float* scratch);

  // Rows `begin` to `end` as floats [end - begin, width], in the order of this table, zeros behind.
  void (*unpack)(const QuantizedWeight& weight, int64_t begin, int64_t end, int64_t width, float* out);

  // y[n] = sum over k of w[n * stride + k] * x[k], for n from `begin` to `end`.
  void (*dot)(Real type, const void* w, int64_t stride, const float* x, int64_t columns, int64_t begin,
              int64_t end, float* y);

  // y[n] = sum over k of x[k] * w[k * stride + n], for n from `begin` to `end`.
  void (*combine)(Real type, const void* w, int64_t stride, const float* x, int64_t rows, int64_t begin,
                  int64_t end, float* y);
};

extern const WeightKernels kDefaultWeights;
#ifdef TOS_X86
extern const WeightKernels kAvx2Weights;
extern const WeightKernels kAvx512Weights;
extern const WeightKernels kAvx512VnniWeights;
#endif

// The table for a set of instructions by number: see instructions_for.
const WeightKernels& weights_for(int64_t instructions);

}  // namespace tos
