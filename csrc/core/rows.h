#pragma once

#include <cstdint>

#include "attention/rotary/head_strides.h"
#include "elementwise/activate/activations.h"
#include "linear/weights/weights.h"

// Rows of activations that are read and written once, on raw pointers. Each set of instructions has a table
// of its own; none of these functions allocates or throws, and none reads outside of what it is given.
namespace tos {

// Rows of `width` elements, x + skip + bias, that are divided by the root of their mean square and scaled.
// `skip` and `bias` may be nullptr, so may `total`, which takes the sum, and `inverse`, which takes the
// inverse root of each row. Without skip and bias there is no `total`.
struct NormRows {
  const void* x;
  const void* skip;
  const void* bias;   // [width]
  const void* gamma;  // [width]
  void* y;
  void* total;
  float* inverse;
  int64_t width;
  float epsilon;
};

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

// Rows of `width` elements, act(gate + gate_bias) * (up + up_bias + beta), or the activation alone where `up`
// is nullptr. The biases may be nullptr. Above a limit of 0 the gate is cut there before it is activated, and
// the other factor there and at its negative.
struct RowKernels {
  // Rows `begin` to `end`.
  void (*normalize)(Real type, const NormRows& rows, int64_t begin, int64_t end);

  // Tokens `begin` to `end`. `scratch` has 2 * width entries.
  void (*rotate)(Real type, const RotateRows& rows, int64_t begin, int64_t end, float* scratch);

  // Rows `begin` to `end`.
  void (*activate)(Real type, const ActivateRows& rows, int64_t begin, int64_t end);
};

extern const RowKernels kDefaultRows;
#ifdef TOS_X86
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;
#endif

// The table for a set of instructions by number, as `kernels_for` takes it.
const RowKernels& rows_for(int64_t instructions);

}  // namespace tos
