// The function of gqa_decode_rows.h. Included once by each file of kernels, behind its lanes: `Wide` names
// them, `greater` is the greater one of each lane (the second where one is no number), and `power_of_two`
// raises two to whole numbers from -127 on, of which the first one gives zero, `four_sums` adds the lanes of
// four, and `signed_bytes` and `nibbles` load what a cache may hold. Everything is local to that file.
#include "core/load_body.h"

namespace {

constexpr Real real_of_held(Held held) {
  return held == Held::kFloat ? Real::kFloat : held == Held::kHalf ? Real::kHalf : Real::kBFloat16;
}

template <Held kHeld>
Wide load_held(const void* from, int64_t at) {
  if constexpr (kHeld == Held::kBytes) return signed_bytes(static_cast<const int8_t*>(from) + at);
  if constexpr (kHeld == Held::kNibbles) return nibbles(static_cast<const uint8_t*>(from) + at / 2);
  return load_reals<Wide>(real_of_held(kHeld), from, at);
}

template <Held kHeld>
float held_at(const void* from, int64_t at) {
  if constexpr (kHeld == Held::kBytes) return static_cast<float>(static_cast<const int8_t*>(from)[at]);
  if constexpr (kHeld == Held::kNibbles) {
    const int byte = static_cast<const uint8_t*>(from)[at / 2];
    return static_cast<float>((at % 2 == 0 ? byte & 15 : byte >> 4) - 8);
  }
  return real_at(real_of_held(kHeld), from, at);
}

// exp of what is not positive, zero below the least float of full precision.
Wide exponential(const Wide& x) {
  const Wide bounded = greater(Wide::all(-88.029f), x);
  // Adding this leaves no bits for a fraction.
  const Wide shift = Wide::all(12582912.0f);
  const Wide whole = fused(bounded, Wide::all(1.44269504f), shift) + Wide::all(-12582912.0f);
  const Wide remainder =
      fused(whole, Wide::all(2.12194440e-4f), fused(whole, Wide::all(-0.693359375f), bounded));
  Wide sum = Wide::all(1.9875691500e-4f);
  sum = fused(sum, remainder, Wide::all(1.3981999507e-3f));
  sum = fused(sum, remainder, Wide::all(8.3334519073e-3f));
  sum = fused(sum, remainder, Wide::all(4.1665795894e-2f));
  sum = fused(sum, remainder, Wide::all(1.6666665459e-1f));
  sum = fused(sum, remainder, Wide::all(5.0000001201e-1f));
  return fused(sum * remainder, remainder, remainder + Wide::all(1.0f)) * power_of_two(whole);
}

// Scores of kCount queries, from `first` on, for some rows, the first of them `from` behind `begin`.
template <Held kHeld, int kCount>
void score_rows(const CacheRows& rows, const CacheQueries& queries, int64_t first, int64_t begin,
                int64_t from, int64_t count) {
  const int64_t width = rows.width;
  const float* q = queries.rows + first * width;
  for (int64_t j = from; j < count; ++j) {
    const int64_t at = (begin + j) * rows.key_stride;
    Wide part[kCount];
    TOS_UNROLL
    for (int i = 0; i < kCount; ++i) part[i] = Wide::all(0.0f);
    int64_t d = 0;
    for (; d + Wide::kWidth <= width; d += Wide::kWidth) {
      const Wide key = load_held<kHeld>(rows.keys, at + d);
      TOS_UNROLL
      for (int i = 0; i < kCount; ++i) part[i] = fused(key, Wide::load(q + i * width + d), part[i]);
    }
    float sum[kCount];
    if constexpr (kCount == 4) {
      four_sums(part, sum);
    } else {
      TOS_UNROLL
      for (int i = 0; i < kCount; ++i) sum[i] = part[i].sum();
    }
    for (; d < width; ++d) {
      const float key = held_at<kHeld>(rows.keys, at + d);
      for (int i = 0; i < kCount; ++i) sum[i] += key * q[i * width + d];
    }
    TOS_UNROLL
    for (int i = 0; i < kCount; ++i) queries.scores[(first + i) * kRowsOfCache + j] = sum[i];
  }
}

// Scores of one query for four rows at once: of one row alone each sum would wait for the one before.
template <Held kHeld>
void score_four_rows(const CacheRows& rows, const CacheQueries& queries, int64_t q, int64_t begin,
                     int64_t j) {
  constexpr int kRows = 4;
  const int64_t width = rows.width, stride = rows.key_stride, at = (begin + j) * stride;
  const float* query = queries.rows + q * width;
  Wide part[kRows];
  TOS_UNROLL
  for (int r = 0; r < kRows; ++r) part[r] = Wide::all(0.0f);
  int64_t d = 0;
  for (; d + Wide::kWidth <= width; d += Wide::kWidth) {
    const Wide factor = Wide::load(query + d);
    TOS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      part[r] = fused(load_held<kHeld>(rows.keys, at + r * stride + d), factor, part[r]);
    }
  }
  float sum[kRows];
  four_sums(part, sum);
  for (; d < width; ++d) {
    for (int r = 0; r < kRows; ++r) sum[r] += held_at<kHeld>(rows.keys, at + r * stride + d) * query[d];
  }
  std::memcpy(queries.scores + q * kRowsOfCache + j, sum, sizeof(sum));
}

template <Held kHeld>
void score_query(const CacheRows& rows, const CacheQueries& queries, int64_t q, int64_t begin,
                 int64_t count) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) score_four_rows<kHeld>(rows, queries, q, begin, j);
  if (j < count) score_rows<kHeld, 1>(rows, queries, q, begin, j, count);
}

// What a query sees of its scores, up to `whole` whole lanes; the greatest of them.
float see(const CacheRows& rows, const CacheQueries& queries, int64_t q, int64_t begin, int64_t count,
          int64_t whole) {
  float* scores = queries.scores + q * kRowsOfCache;
  const int64_t start = rows.position + begin;
  if (queries.softcap != 0.0f) {
    for (int64_t j = 0; j < count; ++j) scores[j] = std::tanh(scores[j] / queries.softcap) * queries.softcap;
  }
  if (queries.bias != nullptr) {
    for (int64_t j = 0; j < count; ++j) scores[j] += real_at(rows.type, queries.bias[q], start + j);
  }
  const int64_t low = queries.low[q] - start, high = queries.high[q] - start;
  for (int64_t j = 0; j < low && j < count; ++j) scores[j] = -HUGE_VALF;
  // Behind the last one lies what gives no weight.
  for (int64_t j = high < 0 ? 0 : (high < count ? high : count); j < whole; ++j) scores[j] = -HUGE_VALF;
  Wide greatest = Wide::all(-HUGE_VALF);
  for (int64_t j = 0; j < whole; j += Wide::kWidth) greatest = greater(Wide::load(scores + j), greatest);
  float each[Wide::kWidth];
  greatest.store(each);
  float row_max = -HUGE_VALF;
  for (int i = 0; i < Wide::kWidth; ++i) row_max = each[i] > row_max ? each[i] : row_max;
  // One that is no number weighs as such beside others; alone it is the greatest.
  for (int64_t j = 0; j < count && row_max == -HUGE_VALF; ++j) {
    if (scores[j] != scores[j]) row_max = scores[j];
  }
  return row_max;
}

// Scores become weights, beside the greatest score so far; false where there is nothing to add.
bool weigh(const CacheRows& rows, const CacheQueries& queries, int64_t q, int64_t begin, int64_t count) {
  float* scores = queries.scores + q * kRowsOfCache;
  const int64_t whole = (count + Wide::kWidth - 1) / Wide::kWidth * Wide::kWidth;
  const float row_max = see(rows, queries, q, begin, count, whole);
  if (row_max == -HUGE_VALF) return false;
  const float previous_max = queries.row_max[q];
  if (!(row_max <= previous_max)) {
    queries.row_max[q] = row_max;
    float factor[Wide::kWidth];
    exponential(Wide::all(previous_max - row_max)).store(factor);
    queries.sum[q] *= factor[0];
    float* total = queries.total + q * rows.width;
    for (int64_t d = 0; d < rows.width; ++d) total[d] *= factor[0];
  }
  const Wide minus = Wide::all(-queries.row_max[q]);
  Wide sum = Wide::all(0.0f);
  for (int64_t j = 0; j < whole; j += Wide::kWidth) {
    const Wide weight = exponential(Wide::load(scores + j) + minus);
    weight.store(scores + j);
    sum = sum + weight;
  }
  queries.sum[q] += sum.sum();
  return true;
}

// Adds kParts lanes of the weighted values of some rows, from d on, for kCount queries from `first` on.
template <Held kHeld, int kCount, int kParts>
void add_parts(const CacheRows& rows, const CacheQueries& queries, int64_t first, int64_t begin,
               int64_t count, int64_t d) {
  const int64_t width = rows.width;
  const float* weights = queries.scores + first * kRowsOfCache;
  float* total = queries.total + first * width;
  Wide sum[kCount][kParts];
  TOS_UNROLL
  for (int i = 0; i < kCount; ++i) {
    TOS_UNROLL
    for (int p = 0; p < kParts; ++p) sum[i][p] = Wide::load(total + i * width + d + p * Wide::kWidth);
  }
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at = (begin + j) * rows.value_stride + d;
    Wide value[kParts];
    TOS_UNROLL
    for (int p = 0; p < kParts; ++p) value[p] = load_held<kHeld>(rows.values, at + p * Wide::kWidth);
    TOS_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const Wide weight = Wide::all(weights[i * kRowsOfCache + j]);
      TOS_UNROLL
      for (int p = 0; p < kParts; ++p) sum[i][p] = fused(value[p], weight, sum[i][p]);
    }
  }
  TOS_UNROLL
  for (int i = 0; i < kCount; ++i) {
    TOS_UNROLL
    for (int p = 0; p < kParts; ++p) sum[i][p].store(total + i * width + d + p * Wide::kWidth);
  }
}

// Adds the weighted values of some rows for kCount queries from `first` on.
template <Held kHeld, int kCount>
void add_values(const CacheRows& rows, const CacheQueries& queries, int64_t first, int64_t begin,
                int64_t count) {
  // A row at once where one query leaves the registers: fewer lanes would wait for one another.
  constexpr int kMost = kCount == 1 ? 8 : 2;
  const int64_t width = rows.width;
  const float* weights = queries.scores + first * kRowsOfCache;
  float* total = queries.total + first * width;
  int64_t d = 0;
  for (; d + kMost * Wide::kWidth <= width; d += kMost * Wide::kWidth) {
    add_parts<kHeld, kCount, kMost>(rows, queries, first, begin, count, d);
  }
  if constexpr (kMost > 4) {
    for (; d + 4 * Wide::kWidth <= width; d += 4 * Wide::kWidth) {
      add_parts<kHeld, kCount, 4>(rows, queries, first, begin, count, d);
    }
  }
  for (; d + 2 * Wide::kWidth <= width; d += 2 * Wide::kWidth) {
    add_parts<kHeld, kCount, 2>(rows, queries, first, begin, count, d);
  }
  for (; d < width; ++d) {
    for (int64_t j = 0; j < count; ++j) {
      const float value = held_at<kHeld>(rows.values, (begin + j) * rows.value_stride + d);
      for (int i = 0; i < kCount; ++i) total[i * width + d] += value * weights[i * kRowsOfCache + j];
    }
  }
}

template <Held kHeld>
void attend_held(const CacheRows& rows, const CacheQueries& queries) {
  constexpr int kAtOnce = 4;
  for (int64_t begin = 0; begin < rows.count; begin += kRowsOfCache) {
    const int64_t left = rows.count - begin, count = left < kRowsOfCache ? left : kRowsOfCache;
    int64_t q = 0;
    for (; q + kAtOnce <= queries.count; q += kAtOnce)
      score_rows<kHeld, kAtOnce>(rows, queries, q, begin, 0, count);
    for (; q < queries.count; ++q) score_query<kHeld>(rows, queries, q, begin, count);
    for (q = 0; q < queries.count; ++q) {
      if (weigh(rows, queries, q, begin, count)) continue;
      for (int64_t j = 0; j < count; ++j) queries.scores[q * kRowsOfCache + j] = 0.0f;
    }
    for (q = 0; q + kAtOnce <= queries.count; q += kAtOnce) {
      add_values<kHeld, kAtOnce>(rows, queries, q, begin, count);
    }
    for (; q < queries.count; ++q) add_values<kHeld, 1>(rows, queries, q, begin, count);
  }
}

void attend(const CacheRows& rows, const CacheQueries& queries) {
  switch (rows.held) {
    case Held::kFloat:
      return attend_held<Held::kFloat>(rows, queries);
    case Held::kHalf:
      return attend_held<Held::kHalf>(rows, queries);
    case Held::kBFloat16:
      return attend_held<Held::kBFloat16>(rows, queries);
    case Held::kBytes:
      return attend_held<Held::kBytes>(rows, queries);
    case Held::kNibbles:
      return attend_held<Held::kNibbles>(rows, queries);
  }
}

}  // namespace
