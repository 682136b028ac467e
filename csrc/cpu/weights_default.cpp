// Products with weights that are read once, for any machine.
#include <cstring>

#include "tos/lanes_default.h"
#include "tos/weights.h"

namespace tos {

namespace {

using Wide = Lanes4;
using Row = Lanes4;
using Bytes = Bytes16;

}  // namespace

#include "tos/dense_body.h"
#include "tos/steps_body.h"
#include "tos/weights_body.h"

extern const WeightKernels kDefaultKernels = {"default", arrange, multiply, unpack, dot, combine, kSteps};

}  // namespace tos
