#pragma once

#include <cstdint>

#include "tos/portable.h"

namespace tos {

// An index into an axis of `size` entries, which negative ones count from the end of: a place that exists,
// the nearest one when the index is outside of [-size, size). Adds one to `bad` then.
TOS_PORTABLE int64_t safe_index(int64_t index, int64_t size, int64_t& bad) {
  // Bit arithmetic, so that the loop over the indices is free of branches; no index overflows.
  const int64_t place = index + (size & (index >> 63));
  const int64_t low = place < 0 ? 0 : place;
  const int64_t safe = low < size ? low : size - 1;
  bad += safe != place;
  return safe;
}

}  // namespace tos
