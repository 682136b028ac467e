// Chains of elementwise steps, for any machine.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tos/chain_rows.h"

#define TOS_LANES 4
#include "tos/row_vectors.h"

namespace tos {

#include "tos/chain_body.h"

extern const ChainKernel kDefaultChain = chain;

}  // namespace tos
