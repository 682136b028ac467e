// Chains of elementwise steps, for any machine.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "elementwise/chain/chain_rows.h"

#define TOS_LANES 4
#include "core/row_vectors.h"

namespace tos {

#include "elementwise/chain/chain_body.h"

extern const ChainKernel kDefaultChain = chain;

}  // namespace tos
