// Rows of activations, for AVX-512.
#include "core/rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx512.h"

#define TOS_LANES 16
#include "core/row_vectors.h"

namespace tos {

#include "attention/rotary/rotary_body.h"
#include "elementwise/activate/activate_body.h"
#include "norm/skip_rms_norm/skip_rms_norm_body.h"

extern const RowKernels kAvx512Rows = {normalize, rotate, activate};

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
