// Steps of recurrent layers, for AVX2, FMA and F16C.
#include "recurrent/steps.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <cstring>

#include "core/for_avx2.h"
// From here on for AVX2.
#include "core/lanes_avx2.h"

namespace tos {

namespace {

using Wide = Lanes8;

}  // namespace

#include "recurrent/steps_body.h"

extern const StepKernels kAvx2Steps = kSteps;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
