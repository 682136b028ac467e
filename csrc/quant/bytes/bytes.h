#pragma once

#include <cstdint>

#include "core/instructions.h"

// Elementwise work on numbers of 8 bits, on raw pointers. Each set of instructions has a table of its own,
// and all of them give the same bits: every step is rounded to float32 by itself, as torch's own ops round
// it.
namespace tos {

// How numbers are stored.
enum class Whole : int { kUint8, kInt8, kInt32, kFloat };

// Numbers, and the step from one to the next in elements.
struct Numbers {
  const void* data;
  Whole type;
  int64_t step;
};

// A number counts `(number - zero) * scale`.
struct Quantized {
  float scale;
  float zero;
};

enum class Pair : int { kSum, kProduct };

struct ByteKernels {
  // y[i] = (x[i] - x_zero) * factor[i], or divided by it; rounded to even, moved by `zero`, and held in the
  // range of `to`, which is one of 8 bits. What is no number becomes 0.
  void (*requantize)(Numbers x, float x_zero, const float* factor, int64_t factor_step, bool divide,
                     float zero, Whole to, void* y, int64_t count);

  // The sum or the product of what two numbers count, in the same way; `of_y` tells how the result counts.
  void (*combine)(Pair how, Numbers a, Quantized of_a, Numbers b, Quantized of_b, Quantized of_y, void* y,
                  int64_t count);
};

extern const ByteKernels kDefaultBytes;
#ifdef TOS_X86
extern const ByteKernels kAvx2Bytes;
extern const ByteKernels kAvx512Bytes;
#endif

// The table for a set of instructions by number: see instructions_for.
inline const ByteKernels& bytes_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultBytes, kAvx2Bytes, kAvx512Bytes);
}

}  // namespace tos
