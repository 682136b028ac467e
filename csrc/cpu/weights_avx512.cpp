// Products with weights that are read once, for AVX-512.
#include "tos/weights.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// Its own headers leave operands undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#include "tos/lanes_avx512.h"

namespace tos {

namespace {

using Wide = Lanes16;
using Row = Lanes8;
using Bytes = Bytes64;

}  // namespace

#include "tos/dense_body.h"
#include "tos/steps_body.h"
#include "tos/weights_body.h"

extern const WeightKernels kAvx512Kernels = {"avx512", arrange, multiply, unpack, dot, combine, kSteps};

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
