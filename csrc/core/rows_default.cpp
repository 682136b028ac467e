// Rows of activations, for any machine.
#include <cmath>
#include <cstring>

#include "core/rows.h"

#define TOS_LANES 4
#include "core/row_vectors.h"

namespace tos {

#include "attention/rotary/rotary_body.h"
#include "elementwise/activate/activate_body.h"
#include "norm/skip_rms_norm/skip_rms_norm_body.h"

extern const RowKernels kDefaultRows = {normalize, rotate, activate};

}  // namespace tos
