#pragma once

#include <cstdint>

#include "core/instructions.h"
#include "core/real.h"
#include "elementwise/chain/chain.h"

// Chains of elementwise steps on the CPU, on raw pointers. Each set of instructions has a table of its own.
namespace tos {

// Elements that go through all rows together: registers of so many stay in the first cache.
constexpr int64_t kChainBlock = 1024;
// Floats of the widest vectors.
constexpr int64_t kChainLanes = 16;

struct ChainJob {
  const ChainProgram* program;
  const ChainInput<int64_t>* inputs;
  void* out;
  ChainSlots slots;
};

struct alignas(64) ChainLine {
  float each[kChainLanes];
};

// Scratch memory that a job needs: its slots, a block of floats, and vectors of what is one number.
inline int64_t chain_scratch(const ChainJob& job) {
  return (job.slots.count + 1) * (kChainBlock / kChainLanes) + kChainInputs + kChainConstants;
}

// Elements `begin` to `end` of the result.
using ChainKernel = void (*)(Real type, const ChainJob& job, int64_t begin, int64_t end, float* scratch);

extern const ChainKernel kDefaultChain;
#ifdef TOS_X86
extern const ChainKernel kAvx2Chain;
extern const ChainKernel kAvx512Chain;
#endif

// The one for a set of instructions by number: see instructions_for.
inline ChainKernel chain_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultChain, kAvx2Chain, kAvx512Chain);
}

}  // namespace tos
