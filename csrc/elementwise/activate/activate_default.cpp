// Rows that are activated, for any machine.
#include <cmath>
#include <cstring>

#include "elementwise/activate/activate.h"

#define TOS_LANES 4
#include "core/row_vectors.h"

namespace tos {

#include "elementwise/activate/activate_body.h"

extern const ActivateKernel kDefaultActivate = activate;

}  // namespace tos
