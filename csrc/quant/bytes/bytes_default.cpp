// Elementwise work on numbers of 8 bits, for any machine.
#include <type_traits>

#include "quant/bytes/bytes.h"

// Each product is rounded by itself: a machine that has products and sums in one would differ from others.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif

namespace tos {

#include "quant/bytes/bytes_body.h"

extern const ByteKernels kDefaultBytes = {requantize, combine};

}  // namespace tos
