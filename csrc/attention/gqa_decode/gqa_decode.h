#pragma once

#include <cmath>
#include <cstdint>

#include "core/word.h"
#include "index/check_index/check_index.h"

// A step of GroupQueryAttention: new rows of each sample, and a cache of which each sample uses the first
// rows.
namespace tos {

// What the caches hold: floats of the queries' type, bytes with a sign, or two numbers of 4 bits a byte, less
// 8, the first one lowest. Numbers that are no floats are multiplied by a scale.
enum class GqaHeld { kReals, kBytes, kNibbles };

// Floats are of one type; strides are in numbers, and the last axis of everything is dense.
struct GqaDecode {
  const void* query;  // [batch, length, heads, width] by query_batch and query_row
  const void* key;    // [batch, length, groups, width]
  const void* value;
  const void* past_key;  // [batch, groups, capacity, width]
  const void* past_value;
  const int32_t* last;    // [batch], the number of positions after the step, less one
  const int32_t* counts;  // [batch], how many new rows count, before others; nullptr for all
  const void* cos;        // [positions, angles]; nullptr where nothing is rotated
  const void* sin;
  const int64_t* position;  // [batch, length]; nullptr counts on from the cache
  const void* bias;         // [batch, heads, length, total] by bias_batch, bias_head and bias_row; or nullptr
  const void* sink;         // [heads] or nullptr
  // [width], what rows that are divided by their root mean square are multiplied by; or nullptr
  const void* query_norm;
  const void* key_norm;
  // [groups, width] where the step is 1, one where it is 0; nullptr where the caches hold floats
  const float* key_scale;
  const float* value_scale;
  int64_t key_scale_step, value_scale_step;
  GqaHeld held;
  void* fresh_key;  // [batch, groups, length, width], the new rows as the cache holds them
  void* fresh_value;
  void* y;  // [batch, length, heads, width]
  int64_t batch, length, heads, groups, width, capacity, total, angles, positions, window;
  int64_t query_batch, query_row, key_batch, key_row, value_batch, value_row;
  int64_t past_key_batch, past_key_head, past_key_row, past_value_batch, past_value_head, past_value_row;
  int64_t bias_batch, bias_head, bias_row;
  float scale, softcap, query_epsilon, key_epsilon;
  bool interleaved, smooth;
  bool rolling;  // whether the cache holds the last positions only, in their order from row 0
};

// What number d of a group of keys or values is multiplied by.
TOS_PORTABLE float gqa_scale(const float* scale, int64_t step, int64_t width, int64_t group, int64_t d) {
  return scale == nullptr ? 1.0f : scale[(group * width + d) * step];
}

// A float as the whole number that stands for it; what is no number becomes zero.
TOS_PORTABLE int gqa_stored(float value, float scale, GqaHeld held) {
  const float bound = held == GqaHeld::kBytes ? 127.0f : 7.0f;
  const float ratio = value / scale;
  if (ratio != ratio) return 0;
  const float raised = ratio < -bound - 1.0f ? -bound - 1.0f : ratio;
  return static_cast<int>(nearbyintf(raised > bound ? bound : raised));
}

// Where the new rows of a sample belong.
struct GqaPlace {
  int64_t before;  // positions before the step; -1 where what tells it cannot be
  int64_t first;   // the one that row 0 of the cache holds
  int64_t count;   // new rows that count
  bool good;
};

// How many new rows of a sample count, not yet checked.
TOS_PORTABLE int64_t gqa_count(const GqaDecode& step, int64_t sample) {
  if (step.counts != nullptr) return step.counts[sample];
  const int64_t after = static_cast<int64_t>(step.last[sample]) + 1;
  return step.rolling && after < step.length ? after : step.length;
}

// How many positions there have to be after the step, and how many there can be.
TOS_PORTABLE int64_t gqa_least(int64_t count) { return count < 1 ? 1 : count; }

TOS_PORTABLE int64_t gqa_most(const GqaDecode& step, int64_t count) {
  const int64_t room = step.capacity + count;
  return step.rolling || step.total < room ? step.total : room;
}

// How many of so many positions the cache holds, after as few evictions as make them fit.
TOS_PORTABLE int64_t gqa_held(const GqaDecode& step, int64_t positions) {
  if (!step.rolling || positions <= step.capacity) return positions;
  const int64_t each = step.capacity - step.window + 1;
  return positions - (positions - step.capacity + each - 1) / each * each;
}

TOS_PORTABLE GqaPlace gqa_place(const GqaDecode& step, int64_t sample) {
  const int64_t after = static_cast<int64_t>(step.last[sample]) + 1, count = gqa_count(step, sample);
  const bool good =
      count >= 0 && count <= step.length && after >= gqa_least(count) && after <= gqa_most(step, count);
  if (!good) return {-1, 0, 0, false};
  return {after - count, after - count - gqa_held(step, after - count), count, true};
}

// What is wrong with a sample whose place cannot be.
struct GqaFault {
  word::Flag flag;
  int64_t value, low, high;
};

TOS_PORTABLE GqaFault gqa_fault(const GqaDecode& step, int64_t sample) {
  const int64_t count = gqa_count(step, sample);
  if (step.counts != nullptr && (count < 0 || count > step.length)) {
    return {word::kLengthOutOfRange, count, 0, step.length};
  }
  return {word::kPositionOutOfRange, step.last[sample], gqa_least(count) - 1, gqa_most(step, count) - 1};
}

// What is behind the last position that a new row sees: nothing of those that do not count.
TOS_PORTABLE int64_t gqa_high(const GqaPlace& place, int64_t row) {
  return row < place.count ? place.before + row + 1 : 0;
}

// The first position that a new row sees, which has `high` behind the last.
TOS_PORTABLE int64_t gqa_low(const GqaDecode& step, const GqaPlace& place, int64_t high) {
  const int64_t low = step.window > 0 ? high - step.window : 0;
  return low > place.first ? low : place.first;
}

// What one place of a sample is in the result: the row of the cache where the new ones go, or that, how many
// rows from the first on make way, and how many new rows count.
constexpr int64_t kGqaWhole = 1, kGqaParted = 3;

TOS_PORTABLE int64_t gqa_places(const GqaDecode& step) {
  return step.rolling || step.counts != nullptr ? kGqaParted : kGqaWhole;
}

TOS_PORTABLE void gqa_tell(const GqaDecode& step, const GqaPlace& place, int64_t* to) {
  const int64_t start = place.good ? gqa_held(step, place.before + place.count) - place.count : -1;
  to[0] = start;
  if (gqa_places(step) == kGqaWhole) return;
  // Where more are new than the cache holds, none of the old ones stay, nor the first ones of the new.
  to[1] = place.good ? place.before - place.first - (start < 0 ? 0 : start) : 0;
  to[2] = place.count;
}

// The row of cosines and sines of a new row, not yet checked.
TOS_PORTABLE int64_t gqa_angle(const GqaDecode& step, const GqaPlace& place, int64_t sample, int64_t row) {
  if (step.position != nullptr) return step.position[sample * step.length + row];
  return (place.good ? place.before : 0) + row;
}

}  // namespace tos
