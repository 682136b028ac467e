// Heads that are turned, for AVX2, FMA and F16C.
#include "attention/rotary/rotary.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx2.h"

#define TOS_LANES 8
#include "core/row_vectors.h"

namespace tos {

#include "attention/rotary/rotary_body.h"

extern const RotateKernel kAvx2Rotate = rotate;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
