// Chains of elementwise steps, for AVX-512.
#include "tos/chain_rows.h"

#ifdef TOS_X86

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tos/for_avx512.h"

#define TOS_LANES 16
#include "tos/row_vectors.h"

namespace tos {

#include "tos/chain_body.h"

extern const ChainKernel kAvx512Chain = chain;

}  // namespace tos

#include "tos/for_all.h"

#endif  // TOS_X86
