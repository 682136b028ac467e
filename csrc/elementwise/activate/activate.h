#pragma once

#include <cstdint>

#include "core/instructions.h"
#include "core/real.h"
#include "elementwise/activate/activations.h"

// Rows that are activated, on raw pointers. Each set of instructions has a function of its
// own; none of them allocates or throws, and none reads outside of what it is given.
namespace tos {

// Rows `begin` to `end`.
using ActivateKernel = void (*)(Real type, const ActivateRows& rows, int64_t begin, int64_t end);

extern const ActivateKernel kDefaultActivate;
#ifdef TOS_X86
extern const ActivateKernel kAvx2Activate;
extern const ActivateKernel kAvx512Activate;
#endif

// The one for a set of instructions by number: see instructions_for.
inline ActivateKernel activate_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultActivate, kAvx2Activate, kAvx512Activate);
}

}  // namespace tos
