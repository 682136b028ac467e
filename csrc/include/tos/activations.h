#pragma once

namespace tos {

// What a gate is: x times the normal distribution function, x times its form by tanh, x * sigmoid(alpha * x).
enum class Activation : int { kGelu, kTanhGelu, kSigmoid, kCount };

}  // namespace tos
