// Products with weights that are read once, for any machine.
#include <cstring>

#include "core/lanes_default.h"
#include "linear/weights/weights.h"

namespace tos {

namespace {

using Wide = Lanes4;
using Row = Lanes4;
using Bytes = Bytes16;

}  // namespace

#include "linear/weights/dense_body.h"
#include "linear/weights/weights_body.h"

extern const WeightKernels kDefaultWeights = {arrange, multiply, unpack, dot, combine};

}  // namespace tos
