#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attention/cache_appended/cache_appended_check.h"
#include "attention/cache_appended/cache_appended_launch.h"

namespace tos::cuda {

namespace {

void cache_append_(at::TensorList caches, at::TensorList fresh, at::TensorList starts,
                   const std::optional<at::Tensor>& word) {
  check_appended(caches, fresh, starts, word);
  if (caches.empty()) return;
  const c10::cuda::CUDAGuard guard(caches[0].device());
  std::vector<CacheAppend> all;
  for (size_t i = 0; i < caches.size(); ++i) all.push_back(append_of(caches[i], fresh[i], starts[i]));
  launch_cache_append(all.data(), static_cast<int64_t>(all.size()),
                      word.has_value() ? word->const_data_ptr<int32_t>() : nullptr,
                      c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor cache_appended(const at::Tensor& past, const at::Tensor& fresh, const at::Tensor& start,
                          int64_t rows) {
  std::vector<int64_t> shape = past.sizes().vec();
  TORCH_CHECK_VALUE(shape.size() == 4, "cache_appended: the cache is not of rank 4");
  const c10::cuda::CUDAGuard guard(past.device());
  const int64_t old = shape[2];
  shape[2] = std::max(old, rows);
  at::Tensor result = at::empty(shape, past.options().memory_format(at::MemoryFormat::Contiguous));
  result.narrow(2, 0, old).copy_(past);
  if (rows > old) result.narrow(2, old, rows - old).zero_();
  cache_append_({result}, {fresh}, {start}, std::nullopt);
  return result;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) {
  m.impl("cache_append_", &tos::cuda::cache_append_);
  m.impl("cache_appended", &tos::cuda::cache_appended);
}
