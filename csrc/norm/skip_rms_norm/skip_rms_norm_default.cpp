// Rows that are normalized, for any machine.
#include <cmath>
#include <cstring>

#include "norm/skip_rms_norm/skip_rms_norm.h"

#define TOS_LANES 4
#include "core/row_vectors.h"

namespace tos {

#include "norm/skip_rms_norm/skip_rms_norm_body.h"

extern const NormKernel kDefaultNorm = normalize;

}  // namespace tos
