#pragma once

#include <cstdint>

#include "attention/rotary/head_strides.h"
#include "core/instructions.h"
#include "core/real.h"

// Heads that are turned, on raw pointers. Each set of instructions has a function of its
// own; none of them allocates or throws, and none reads outside of what it is given.
namespace tos {

// Heads of tokens, of `size` features, of which the first `width` are turned in pairs by the angles of their
// token, and the others copied. A pair is two neighbours, or one of each half.
struct RotateRows {
  const void* x;
  const void* cos;        // [positions, width / 2]
  const void* sin;        // like `cos`
  const int64_t* angles;  // the row of each token there; nullptr where it is the token's number
  void* y;
  HeadStrides from;
  HeadStrides to;
  int64_t length;  // tokens of a sample
  int64_t heads;
  int64_t size;
  int64_t width;  // even
  bool interleaved;
};

// Tokens `begin` to `end`. `scratch` has 2 * width entries.
using RotateKernel = void (*)(Real type, const RotateRows& rows, int64_t begin, int64_t end, float* scratch);

extern const RotateKernel kDefaultRotate;
#ifdef TOS_X86
extern const RotateKernel kAvx2Rotate;
extern const RotateKernel kAvx512Rotate;
#endif

// The one for a set of instructions by number: see instructions_for.
inline RotateKernel rotate_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultRotate, kAvx2Rotate, kAvx512Rotate);
}

}  // namespace tos
