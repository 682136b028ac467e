// Rows that are normalized, for AVX2, FMA and F16C.
#include "norm/skip_rms_norm/skip_rms_norm.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx2.h"

#define TOS_LANES 8
#include "core/row_vectors.h"

namespace tos {

#include "norm/skip_rms_norm/skip_rms_norm_body.h"

extern const NormKernel kAvx2Norm = normalize;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
