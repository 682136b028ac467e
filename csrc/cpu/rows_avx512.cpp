// Rows of activations, for AVX-512.
#include "tos/rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "tos/for_avx512.h"

#define TOS_LANES 16
#include "tos/row_vectors.h"

namespace tos {

#include "tos/activate_body.h"
#include "tos/norm_body.h"
#include "tos/rotate_body.h"

extern const RowKernels kAvx512Rows = {normalize, rotate, activate};

}  // namespace tos

#include "tos/for_all.h"

#endif  // TOS_X86
