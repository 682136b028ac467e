// Steps of recurrent layers, for AVX-512.
#include "recurrent/steps.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

#if !defined(__clang__)
// Its own headers leave operands undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "core/for_avx512.h"
// From here on for AVX-512.
#include "core/lanes_avx512.h"

namespace tos {

namespace {

using Wide = Lanes16;

}  // namespace

#include "recurrent/steps_body.h"

extern const StepKernels kAvx512Steps = kSteps;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
