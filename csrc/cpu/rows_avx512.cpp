// Rows of activations, for AVX-512.
#include "tos/rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cmath>
#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#define TOS_LANES 16
#include "tos/row_vectors.h"

namespace tos {

#include "tos/activate_body.h"
#include "tos/norm_body.h"
#include "tos/rotate_body.h"

extern const RowKernels kAvx512Rows = {normalize, rotate, activate};

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
