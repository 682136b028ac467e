// Elementwise work on numbers of 8 bits, for AVX-512.
#include "quant/bytes/bytes.h"

#ifdef TOS_X86

#include <type_traits>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang fp contract(off)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2"))), \
                             apply_to = function)
#else
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512")
#endif

namespace tos {

#include "quant/bytes/bytes_body.h"

extern const ByteKernels kAvx512Bytes = {requantize, combine};

}  // namespace tos

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
