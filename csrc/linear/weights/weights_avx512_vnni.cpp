#define TOS_VNNI
#include "linear/weights/weights_avx512.h"

#ifdef TOS_X86

namespace tos {

extern const WeightKernels kAvx512VnniKernels = {"avx512 vnni", arrange, multiply, unpack,
                                                 dot,           combine, kSteps};

}  // namespace tos

#endif  // TOS_X86
