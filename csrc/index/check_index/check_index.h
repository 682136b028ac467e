#pragma once

#include <cstdint>

#include "core/portable.h"

namespace tos {

// An index into an axis of `size` entries, which negative ones count from the end: a place that exists,
// the nearest one when the index is outside of [-size, size). Adds one to `bad` then.
TOS_PORTABLE int64_t safe_index(int64_t index, int64_t size, int64_t& bad) {
  // Bit arithmetic, so that the loop over the indices is free of branches; no index overflows.
  const int64_t place = index + (size & (index >> 63));
  const int64_t low = place < 0 ? 0 : place;
  const int64_t safe = low < size ? low : size - 1;
  bad += safe != place;
  return safe;
}

// What is asked of an index: see safe_index.
struct Wrapping {
  int64_t size;

  TOS_PORTABLE int64_t low() const { return -size; }
  TOS_PORTABLE int64_t high() const { return size - 1; }
  TOS_PORTABLE int64_t safe(int64_t index, int64_t& bad) const { return safe_index(index, size, bad); }
};

// What is asked of any other number: to lie in [lower, upper]. The nearest one that does takes its place.
struct Within {
  int64_t lower;
  int64_t upper;

  TOS_PORTABLE int64_t low() const { return lower; }
  TOS_PORTABLE int64_t high() const { return upper; }
  TOS_PORTABLE int64_t safe(int64_t value, int64_t& bad) const {
    const int64_t raised = value < lower ? lower : value;
    const int64_t safe = raised > upper ? upper : raised;
    bad += safe != value;
    return safe;
  }
};

}  // namespace tos
