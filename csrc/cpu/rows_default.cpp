// Rows of activations, for any machine.
#include <cmath>
#include <cstring>

#include "tos/rows.h"

#define TOS_LANES 4
#include "tos/row_vectors.h"

namespace tos {

#include "tos/activate_body.h"
#include "tos/norm_body.h"
#include "tos/rotate_body.h"

extern const RowKernels kDefaultRows = {normalize, rotate, activate};

}  // namespace tos
