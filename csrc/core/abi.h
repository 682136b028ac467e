#pragma once

#include <cstdint>

namespace tos {

// Raised whenever a schema or the meaning of an op changes, so that Python code never drives a library
// that was built for other rules.
constexpr int64_t kAbiVersion = 5;

}  // namespace tos
