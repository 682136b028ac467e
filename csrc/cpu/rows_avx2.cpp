// Rows of activations, for AVX2, FMA and F16C.
#include "tos/rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "tos/for_avx2.h"

#define TOS_LANES 8
#include "tos/row_vectors.h"

namespace tos {

#include "tos/activate_body.h"
#include "tos/norm_body.h"
#include "tos/rotate_body.h"

extern const RowKernels kAvx2Rows = {normalize, rotate, activate};

}  // namespace tos

#include "tos/for_all.h"

#endif  // TOS_X86
