// Attention over rows of a cache, for any machine.
#include <cmath>
#include <cstring>

#include "attention/gqa_decode/gqa_decode_rows.h"
#include "core/lanes_default.h"

namespace tos {

namespace {

using Wide = Lanes4;

Wide greater(const Wide& a, const Wide& b) {
  Wide lanes;
  TOS_UNROLL
  for (int i = 0; i < Wide::kWidth; ++i) lanes.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return lanes;
}

Wide power_of_two(const Wide& x) {
  Wide lanes;
  TOS_UNROLL
  for (int i = 0; i < Wide::kWidth; ++i) {
    // What is no number has no exponent either, and stays none by what it is multiplied with.
    const int32_t whole = x.v[i] == x.v[i] ? static_cast<int32_t>(x.v[i]) : 0;
    lanes.v[i] = real_of(static_cast<uint32_t>(whole + 127) << 23);
  }
  return lanes;
}

Wide signed_bytes(const int8_t* from) {
  Wide lanes;
  TOS_UNROLL
  for (int i = 0; i < Wide::kWidth; ++i) lanes.v[i] = static_cast<float>(from[i]);
  return lanes;
}

Wide nibbles(const uint8_t* from) {
  return Wide::in_order<4>(some_bytes(from, Wide::kWidth / 2)) + Wide::all(-8.0f);
}

void four_sums(const Wide* of, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = of[i].sum();
}

}  // namespace

#include "attention/gqa_decode/gqa_decode_body.h"

void attend_rows_default(const CacheRows& rows, const CacheQueries& queries) { attend(rows, queries); }

}  // namespace tos
