#include "linear/weights/weights_avx512.h"

#ifdef TOS_X86

namespace tos {

extern const WeightKernels kAvx512Kernels = {"avx512", arrange, multiply, unpack, dot, combine, kSteps};

}  // namespace tos

#endif  // TOS_X86
