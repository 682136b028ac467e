#pragma once

#include <cstdint>

#include "core/instructions.h"
#include "core/real.h"

// Attention of a few queries over rows of a cache, on raw pointers. Each set of instructions has a function
// of its own; none of them allocates or throws.
namespace tos {

// What a cache holds: floats, bytes with a sign, or two numbers of 4 bits a byte, less 8, the first one
// lowest.
enum class Held { kFloat, kHalf, kBFloat16, kBytes, kNibbles };

// Rows of keys and values, whose positions follow each other. Strides are in numbers.
struct CacheRows {
  Held held;
  Real type;  // of the bias
  const void* keys;
  const void* values;
  int64_t key_stride;
  int64_t value_stride;
  int64_t width;     // of a row
  int64_t position;  // of the first row
  int64_t count;
};

// Queries that see the same rows, and what they have seen so far: the greatest score, the sum of
// exp(score - greatest), and the sum of the values that are weighted so.
struct CacheQueries {
  int64_t count;
  const float* rows;        // [count, width], scaled
  const int64_t* low;       // the first position in sight of each
  const int64_t* high;      // the one behind the last
  const void* const* bias;  // added to the scores, by position; nullptr for none
  float softcap;            // 0 for none
  float* scores;            // [count, kRowsOfCache] for whoever computes
  float* row_max;           // [count]
  float* sum;               // [count]
  float* total;             // [count, width]
};

// Rows that are attended at once at most.
constexpr int64_t kRowsOfCache = 256;

using AttendRows = void (*)(const CacheRows& rows, const CacheQueries& queries);

void attend_rows_default(const CacheRows& rows, const CacheQueries& queries);
#ifdef TOS_X86
void attend_rows_avx2(const CacheRows& rows, const CacheQueries& queries);
void attend_rows_avx512(const CacheRows& rows, const CacheQueries& queries);
#endif

// The one for a set of instructions by number: see instructions_for.
inline AttendRows attend_rows_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), attend_rows_default, attend_rows_avx2,
                     attend_rows_avx512);
}

}  // namespace tos
