#include "linear/weights/weights.h"

namespace tos {

const WeightKernels& weights_for(int64_t instructions) {
  [[maybe_unused]] const Instructions set = instructions_for(instructions);
#ifdef TOS_X86
  if (set == Instructions::kAvx512Vnni) return kAvx512VnniWeights;
#endif
  return TOS_SERVING(set, kDefaultWeights, kAvx2Weights, kAvx512Weights);
}

}  // namespace tos
