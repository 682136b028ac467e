#pragma once

#include <cstdint>

#include "core/portable.h"

namespace tos {

// Where a head of a token lies, in elements. Tokens are numbered sample by sample.
struct HeadStrides {
  int64_t sample;
  int64_t token;
  int64_t head;

  TOS_PORTABLE int64_t place(int64_t number, int64_t which, int64_t length) const {
    return number / length * sample + number % length * token + which * head;
  }
};

// The position of a token: its own, or counted on from one that every sample starts at.
TOS_PORTABLE int64_t position_of(const int64_t* positions, int64_t number, int64_t length, bool counted) {
  if (!counted) return positions[number];
  return static_cast<int64_t>(static_cast<uint64_t>(positions[0]) + static_cast<uint64_t>(number % length));
}

}  // namespace tos
