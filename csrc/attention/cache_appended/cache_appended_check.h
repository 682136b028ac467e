#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attention/cache_appended/cache_appended.h"
#include "core/word.h"

// Tensors of caches and of new rows, checked.
namespace tos {

inline bool dense_rows(const at::Tensor& cache) {
  return cache.numel() == 0 || cache.size(3) == 1 || cache.stride(3) == 1;
}

inline CacheAppend append_of(const at::Tensor& cache, const at::Tensor& fresh, const at::Tensor& place) {
  const int64_t each = static_cast<int64_t>(cache.element_size());
  CacheAppend one{};
  // A cache that is only read comes as well.
  one.cache = const_cast<void*>(cache.const_data_ptr());
  one.fresh = fresh.const_data_ptr();
  one.places = place.const_data_ptr<int64_t>();
  one.each = place.dim() == 2 ? place.size(1) : 1;
  one.batch = cache.size(0), one.groups = cache.size(1), one.rows = cache.size(2);
  one.length = fresh.size(2), one.row_bytes = cache.size(3) * each;
  one.cache_batch = cache.stride(0) * each, one.cache_head = cache.stride(1) * each;
  one.cache_row = cache.stride(2) * each;
  return one;
}

inline void check_appended(at::TensorList caches, at::TensorList fresh, at::TensorList starts,
                           const std::optional<at::Tensor>& word) {
  TORCH_CHECK_VALUE(caches.size() == fresh.size() && caches.size() == starts.size(),
                    "cache_append: caches, new rows and their places are not as many");
  for (size_t i = 0; i < caches.size(); ++i) {
    const at::Tensor &cache = caches[i], &rows = fresh[i], &start = starts[i];
    TORCH_CHECK_VALUE(cache.dim() == 4 && dense_rows(cache),
                      "cache_append: a cache is not of rank 4 with a dense last axis");
    TORCH_CHECK_VALUE(rows.scalar_type() == cache.scalar_type() && rows.device() == cache.device() &&
                          rows.dim() == 4 && rows.is_contiguous() && rows.size(0) == cache.size(0) &&
                          rows.size(1) == cache.size(1) && rows.size(3) == cache.size(3),
                      "cache_append: the new rows do not fit the cache");
    TORCH_CHECK_VALUE(start.scalar_type() == at::kLong && start.device() == cache.device() &&
                          start.is_contiguous() && start.dim() > 0 && start.dim() <= 2 &&
                          start.size(0) == cache.size(0) && (start.dim() == 1 || start.size(1) == 3),
                      "cache_append: the places are not an int64 of each sample, or three");
  }
  TORCH_CHECK_VALUE(!word.has_value() || (word->scalar_type() == at::kInt && word->is_contiguous() &&
                                          word->numel() == word::kSize),
                    "cache_append: the word is not an int32 tensor of ", int{word::kSize}, " elements");
}

}  // namespace tos
