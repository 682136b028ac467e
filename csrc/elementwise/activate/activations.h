#pragma once

#include <cstdint>

namespace tos {

// What a gate is: x times the normal distribution function, x times its form by tanh, x * sigmoid(alpha * x).
enum class Activation : int { kGelu, kTanhGelu, kSigmoid, kCount };

// Rows of `width` elements, act(gate + gate_bias) * (up + up_bias + beta), or the activation alone where `up`
// is nullptr. The biases may be nullptr. Above a limit of 0 the gate is cut there before it is activated, and
// the other factor there and at its negative.
struct ActivateRows {
  const void* gate;
  const void* up;
  const void* gate_bias;  // [width]
  const void* up_bias;    // [width]
  void* y;
  int64_t gate_stride;  // from row to row
  int64_t up_stride;
  int64_t rows;
  int64_t width;
  Activation kind;
  float alpha;
  float beta;
  float limit;
  bool rounded;  // the activation is rounded to the rows' type before the product
};

}  // namespace tos
