// New rows put behind those of a cache, each sample's where it says.
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tos/cache_inputs.h"
#include "tos/word.h"

namespace tos {

namespace {

void put(const CacheAppend& one) {
  for (int64_t b = 0; b < one.batch; ++b) {
    const int64_t start = one.start[b];
    if (start < 0) continue;
    const int64_t count = std::min(one.length, one.rows - start);
    for (int64_t g = 0; g < one.groups && count > 0; ++g) {
      char* to = static_cast<char*>(one.cache) + b * one.cache_batch + g * one.cache_head;
      const char* from =
          static_cast<const char*>(one.fresh) + (b * one.groups + g) * one.length * one.row_bytes;
      for (int64_t l = 0; l < count; ++l) {
        std::memcpy(to + (start + l) * one.cache_row, from + l * one.row_bytes,
                    static_cast<size_t>(one.row_bytes));
      }
    }
  }
}

void cache_append_(at::TensorList caches, at::TensorList fresh, at::TensorList starts,
                   const std::optional<at::Tensor>& word) {
  check_appended(caches, fresh, starts, word);
  // After bad data nothing is written any more.
  if (word.has_value() && word->const_data_ptr<int32_t>()[word::kFlags] != 0) return;
  for (size_t i = 0; i < caches.size(); ++i) put(append_of(caches[i], fresh[i], starts[i]));
}

// The cache with `rows` rows or as many as it has, zeros in those that neither has.
at::Tensor cache_appended(const at::Tensor& past, const at::Tensor& fresh, const at::Tensor& start,
                          int64_t rows) {
  std::vector<int64_t> shape = past.sizes().vec();
  TORCH_CHECK_VALUE(shape.size() == 4, "cache_appended: the cache is not of rank 4");
  shape[2] = std::max(shape[2], rows);
  at::Tensor made = at::empty(shape, past.options().memory_format(at::MemoryFormat::Contiguous));
  check_appended({made}, {fresh}, {start}, std::nullopt);
  if (made.numel() == 0) return made;
  const CacheAppend one = append_of(made, fresh, start);
  const at::Tensor held = dense_rows(past) ? past : past.contiguous();
  const CacheAppend old = append_of(held, fresh, start);
  at::parallel_for(0, one.batch * one.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      char* to = static_cast<char*>(one.cache) + pair * one.cache_head;
      const char* from = static_cast<const char*>(old.cache) + pair / one.groups * old.cache_batch +
                         pair % one.groups * old.cache_head;
      if (old.cache_row == one.row_bytes) {
        std::memcpy(to, from, static_cast<size_t>(old.rows * one.row_bytes));
      } else {
        for (int64_t row = 0; row < old.rows; ++row) {
          std::memcpy(to + row * one.row_bytes, from + row * old.cache_row,
                      static_cast<size_t>(one.row_bytes));
        }
      }
      std::memset(to + old.rows * one.row_bytes, 0,
                  static_cast<size_t>((one.rows - old.rows) * one.row_bytes));
    }
  });
  put(one);
  return made;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("cache_append_", &tos::cache_append_);
  m.impl("cache_appended", &tos::cache_appended);
}
