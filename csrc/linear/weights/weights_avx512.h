// Products with weights that are read once, for AVX-512, and its VNNI where TOS_VNNI is defined. Included
// once by each file of such kernels, which then names its table.
#pragma once

#include "linear/weights/weights.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#ifdef TOS_VNNI
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#endif
#else
// Its own headers leave operands undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#ifdef TOS_VNNI
#pragma GCC target("avx512vnni")
#endif
#endif

#include "core/lanes_avx512.h"

namespace tos {

namespace {

using Wide = Lanes16;
using Row = Lanes8;
using Bytes = Bytes64;

}  // namespace

#include "linear/weights/dense_body.h"
#include "linear/weights/weights_body.h"

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
