// Rows that are normalized, for AVX-512.
#include "norm/skip_rms_norm/skip_rms_norm.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "core/for_avx512.h"

#define TOS_LANES 16
#include "core/row_vectors.h"

namespace tos {

#include "norm/skip_rms_norm/skip_rms_norm_body.h"

extern const NormKernel kAvx512Norm = normalize;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
