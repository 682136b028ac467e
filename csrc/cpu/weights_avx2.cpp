// Products with weights that are read once, for AVX2, FMA and F16C.
#include "tos/weights.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

// Behind the includes: what those define may be shared with files for other machines.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#include "tos/lanes_avx2.h"

namespace tos {

namespace {

using Wide = Lanes8;
using Row = Lanes8;
using Bytes = Bytes32;

}  // namespace

#include "tos/dense_body.h"
#include "tos/steps_body.h"
#include "tos/weights_body.h"

extern const WeightKernels kAvx2Kernels = {"avx2", arrange, multiply, unpack, dot, combine, kSteps};

}  // namespace tos

// gcc instantiates templates at the end of the file, with what is set there.
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif  // TOS_X86
