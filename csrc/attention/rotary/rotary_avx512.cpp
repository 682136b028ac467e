// Heads that are turned, for AVX-512.
#include "attention/rotary/rotary.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx512.h"

#define TOS_LANES 16
#include "core/row_vectors.h"

namespace tos {

#include "attention/rotary/rotary_body.h"

extern const RotateKernel kAvx512Rotate = rotate;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
