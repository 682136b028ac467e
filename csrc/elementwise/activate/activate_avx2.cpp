// Rows that are activated, for AVX2, FMA and F16C.
#include "elementwise/activate/activate.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx2.h"

#define TOS_LANES 8
#include "core/row_vectors.h"

namespace tos {

#include "elementwise/activate/activate_body.h"

extern const ActivateKernel kAvx2Activate = activate;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
