// Products with weights that are read once, for AVX2, FMA and F16C.
#include "linear/weights/weights.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

#include "core/for_avx2.h"
// From here on for AVX2.
#include "core/lanes_avx2.h"

namespace tos {

namespace {

using Wide = Lanes8;
using Row = Lanes8;
using Bytes = Bytes32;

}  // namespace

#include "linear/weights/dense_body.h"
#include "linear/weights/weights_body.h"

extern const WeightKernels kAvx2Weights = {arrange, multiply, unpack, dot, combine};

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
