// Chains of elementwise steps, for AVX-512.
#include "elementwise/chain/chain_rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/for_avx512.h"

#define TOS_LANES 16
#include "core/row_vectors.h"

namespace tos {

#include "elementwise/chain/chain_body.h"

extern const ChainKernel kAvx512Chain = chain;

}  // namespace tos

#include "core/for_all.h"

#endif  // TOS_X86
