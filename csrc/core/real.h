#pragma once

namespace tos {

// How floats are stored.
enum class Real : int { kFloat, kHalf, kBFloat16 };

}  // namespace tos
