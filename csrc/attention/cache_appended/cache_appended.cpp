// New rows put behind those of a cache, each sample's where it says.
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "attention/cache_appended/cache_appended_check.h"
#include "core/word.h"

namespace tos {

namespace {

// Rows that lie as far apart in both, which may overlap; `to` is not behind `from`.
void move_rows(char* to, const char* from, int64_t count, int64_t row, int64_t bytes) {
  if (row == bytes) {
    std::memmove(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  for (int64_t r = 0; r < count; ++r) std::memmove(to + r * row, from + r * row, static_cast<size_t>(bytes));
}

// Rows that lie one behind the other afterwards.
void copy_rows(char* to, const char* from, int64_t count, int64_t row, int64_t bytes) {
  if (row == bytes) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(to + r * bytes, from + r * row, static_cast<size_t>(bytes));
  }
}

// `moved` says that old rows lie where they stay already.
void put(const CacheAppend& one, bool moved) {
  at::parallel_for(0, one.batch * one.groups, 64, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const AppendPlace place = append_place(one, pair / one.groups);
      char* to = static_cast<char*>(one.cache) + pair / one.groups * one.cache_batch +
                 pair % one.groups * one.cache_head;
      if (!moved && place.kept > 0) {
        move_rows(to, to + place.from * one.cache_row, place.kept, one.cache_row, one.row_bytes);
      }
      const char* from = static_cast<const char*>(one.fresh) + pair * one.length * one.row_bytes;
      const int64_t count = std::min(place.count, one.rows - place.start);
      for (int64_t l = std::max<int64_t>(-place.start, 0); l < count; ++l) {
        std::memcpy(to + (place.start + l) * one.cache_row, from + l * one.row_bytes,
                    static_cast<size_t>(one.row_bytes));
      }
    }
  });
}

void cache_append_(at::TensorList caches, at::TensorList fresh, at::TensorList starts,
                   const std::optional<at::Tensor>& word) {
  check_appended(caches, fresh, starts, word);
  // After bad data nothing is written any more.
  if (word.has_value() && word->const_data_ptr<int32_t>()[word::kFlags] != 0) return;
  for (size_t i = 0; i < caches.size(); ++i) put(append_of(caches[i], fresh[i], starts[i]), false);
}

// The cache with `rows` rows or as many as it has, zeros in those that neither has.
at::Tensor cache_appended(const at::Tensor& past, const at::Tensor& fresh, const at::Tensor& start,
                          int64_t rows) {
  std::vector<int64_t> shape = past.sizes().vec();
  TORCH_CHECK_VALUE(shape.size() == 4, "cache_appended: the cache is not of rank 4");
  shape[2] = std::max(shape[2], rows);
  at::Tensor result = at::empty(shape, past.options().memory_format(at::MemoryFormat::Contiguous));
  check_appended({result}, {fresh}, {start}, std::nullopt);
  if (result.numel() == 0) return result;
  const CacheAppend one = append_of(result, fresh, start);
  const at::Tensor held = dense_rows(past) ? past : past.contiguous();
  const CacheAppend old = append_of(held, fresh, start);
  at::parallel_for(0, one.batch * one.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      char* to = static_cast<char*>(one.cache) + pair * one.cache_head;
      const char* from = static_cast<const char*>(old.cache) + pair / one.groups * old.cache_batch +
                         pair % one.groups * old.cache_head;
      const AppendPlace place = append_place(old, pair / one.groups);
      copy_rows(to, from + place.from * old.cache_row, place.kept, old.cache_row, one.row_bytes);
      copy_rows(to + place.kept * one.row_bytes, from + place.kept * old.cache_row, old.rows - place.kept,
                old.cache_row, one.row_bytes);
      std::memset(to + old.rows * one.row_bytes, 0,
                  static_cast<size_t>((one.rows - old.rows) * one.row_bytes));
    }
  });
  put(one, true);
  return result;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("cache_append_", &tos::cache_append_);
  m.impl("cache_appended", &tos::cache_appended);
}
