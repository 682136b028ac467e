#pragma once

#include <cstdint>

// New rows of a cache, and where they go.
namespace tos {

// Strides and widths are in bytes: what the numbers are is nobody's concern.
struct CacheAppend {
  void* cache;           // [batch, groups, rows] of rows
  const void* fresh;     // [batch, groups, length] of rows, dense
  const int64_t* start;  // [batch]; nothing is written for a negative one
  int64_t batch, groups, rows, length, row_bytes;
  int64_t cache_batch, cache_head, cache_row;
};

}  // namespace tos
