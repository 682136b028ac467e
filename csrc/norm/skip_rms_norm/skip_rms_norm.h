#pragma once

#include <cstdint>

#include "core/instructions.h"
#include "core/real.h"

// Rows that are normalized, on raw pointers. Each set of instructions has a function of its
// own; none of them allocates or throws, and none reads outside of what it is given.
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

// Rows `begin` to `end`.
using NormKernel = void (*)(Real type, const NormRows& rows, int64_t begin, int64_t end);

extern const NormKernel kDefaultNorm;
#ifdef TOS_X86
extern const NormKernel kAvx2Norm;
extern const NormKernel kAvx512Norm;
#endif

// The one for a set of instructions by number: see instructions_for.
inline NormKernel norm_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultNorm, kAvx2Norm, kAvx512Norm);
}

}  // namespace tos
