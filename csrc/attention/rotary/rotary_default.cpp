// Heads that are turned, for any machine.
#include <cmath>
#include <cstring>

#include "attention/rotary/rotary.h"

#define TOS_LANES 4
#include "core/row_vectors.h"

namespace tos {

#include "attention/rotary/rotary_body.h"

extern const RotateKernel kDefaultRotate = rotate;

}  // namespace tos
