#pragma once

#include <cstdint>

#include "core/word.h"

namespace tos::cuda {

// Where a kernel reports bad data, and as what; `word` may be nullptr.
struct Report {
  word::Flag flag;
  int32_t node;
  int32_t* word;
};

}  // namespace tos::cuda
