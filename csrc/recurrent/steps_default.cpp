// Steps of recurrent layers, for any machine.
#include <cstring>

#include "core/lanes_default.h"
#include "recurrent/steps.h"

namespace tos {

namespace {

using Wide = Lanes4;

}  // namespace

#include "recurrent/steps_body.h"

extern const StepKernels kDefaultSteps = kSteps;

}  // namespace tos
