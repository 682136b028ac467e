#pragma once

#include <cstdint>

#include "tos/check_index.h"

// A step of GroupQueryAttention: new rows of each sample, and a cache of which each sample uses the first
// rows.
namespace tos {

// Floats are of one type; strides are in elements, and the last axis of everything is dense.
struct GqaDecode {
  const void* query;  // [batch, length, heads, width] by query_batch and query_row
  const void* key;    // [batch, length, groups, width]
  const void* value;
  const void* past_key;  // [batch, groups, capacity, width]
  const void* past_value;
  const int32_t* last;  // [batch], the number of rows after the step, less one
  const void* cos;      // [positions, angles]; nullptr where nothing is rotated
  const void* sin;
  const int64_t* position;  // [batch, length]; nullptr counts on from the cache
  const void* bias;         // [batch, heads, length, total] by bias_batch, bias_head and bias_row; or nullptr
  const void* sink;         // [heads] or nullptr
  // [width], what rows that are divided by their root mean square are multiplied by; or nullptr
  const void* query_norm;
  const void* key_norm;
  void* fresh_key;  // [batch, groups, length, width], the new rows as the cache holds them
  void* fresh_value;
  void* y;  // [batch, length, heads, width]
  int64_t batch, length, heads, groups, width, capacity, total, angles, positions, window;
  int64_t query_batch, query_row, key_batch, key_row, value_batch, value_row;
  int64_t past_key_batch, past_key_head, past_key_row, past_value_batch, past_value_head, past_value_row;
  int64_t bias_batch, bias_head, bias_row;
  float scale, softcap, query_epsilon, key_epsilon;
  bool interleaved, smooth;
};

// Where the new rows of a sample belong.
struct GqaPlace {
  int64_t before;  // rows of the cache that count; -1 where what tells it cannot be
  bool good;
};

// How many rows there can be after the step.
TOS_PORTABLE int64_t gqa_most(const GqaDecode& step) {
  const int64_t room = step.capacity + step.length;
  return step.total < room ? step.total : room;
}

TOS_PORTABLE GqaPlace gqa_place(const GqaDecode& step, int64_t sample) {
  const int64_t after = static_cast<int64_t>(step.last[sample]) + 1;
  const bool good = after >= step.length && after <= gqa_most(step);
  return {good ? after - step.length : -1, good};
}

// The row of cosines and sines of a new row, not yet checked.
TOS_PORTABLE int64_t gqa_angle(const GqaDecode& step, const GqaPlace& place, int64_t sample, int64_t row) {
  if (step.position != nullptr) return step.position[sample * step.length + row];
  return (place.good ? place.before : 0) + row;
}

}  // namespace tos
