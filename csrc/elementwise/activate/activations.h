#pragma once

#include <cstdint>

namespace tos {

// What a gate is: x times the normal distribution function, x times its form by tanh, x * sigmoid(alpha * x).
enum class Activation : int { kGelu, kTanhGelu, kSigmoid, kCount };

// Rows of gates that are activated, and what they are multiplied by where `up` is there.
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
