#pragma once

#include <cstdint>

#include "core/portable.h"

// New rows of a cache, and where they go.
namespace tos {

// Strides and widths are in bytes: what the numbers are is nobody's concern.
struct CacheAppend {
  void* cache;            // [batch, groups, rows] of rows
  const void* fresh;      // [batch, groups, length] of rows, dense
  const int64_t* places;  // [batch, each]; see append_place
  int64_t each;
  int64_t batch, groups, rows, length, row_bytes;
  int64_t cache_batch, cache_head, cache_row;
};

// Where the new rows of a sample go, of which those with a place that is not there are left out, and how many
// of its old rows stay, from which one on.
struct AppendPlace {
  int64_t start, count, from, kept;
};

// A place is where the first new row goes, none where it is negative; or that, how many rows from the first
// on make way, and how many new rows count.
TOS_PORTABLE AppendPlace append_place(const CacheAppend& one, int64_t sample) {
  const int64_t* place = one.places + sample * one.each;
  const int64_t start = place[0], least = one.each == 1 ? 0 : -one.length;
  if (start < least) return {0, 0, 0, 0};
  if (one.each == 1) return {start, one.length, 0, 0};
  const int64_t from = place[1], count = place[2] < one.length ? place[2] : one.length;
  const bool moves = from > 0 && start > 0 && start <= one.rows && from <= one.rows - start;
  return {start, count, from, moves ? start : 0};
}

}  // namespace tos
