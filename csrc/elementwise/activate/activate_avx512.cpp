// Rows that are activated, for AVX-512.
#include "elementwise/activate/activate.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx512.h"

#define TOS_LANES 16
#include "core/row_vectors.h"

namespace tos {

#include "elementwise/activate/activate_body.h"

extern const ActivateKernel kAvx512Activate = activate;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
