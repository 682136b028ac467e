#include "linear/weights/weights_avx512.h"

#ifdef TOS_X86

namespace tos {

extern const WeightKernels kAvx512Weights = {arrange, multiply, unpack, dot, combine};

}  // namespace tos

#endif  // TOS_X86
