// Chains of elementwise steps, for AVX-512.
#include "tos/chain_rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

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

#include "tos/chain_body.h"

extern const ChainKernel kAvx512Chain = chain;

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
