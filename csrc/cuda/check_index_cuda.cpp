#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "launch.h"
#include "tos/word.h"

namespace tos::cuda {

namespace {

// See csrc/cpu/check_index.cpp.
at::Tensor check_index(const at::Tensor& index, int64_t size, int64_t node,
                       const std::optional<at::Tensor>& word) {
  const at::ScalarType type = index.scalar_type();
  const bool known = type == at::kLong || type == at::kInt || type == at::kShort || type == at::kChar;
  TORCH_CHECK_VALUE(known || type == at::kByte, "check_index: the index is ", type, ", not an integer");
  if (word.has_value()) {
    TORCH_CHECK_VALUE(word->device() == index.device() && word->is_contiguous() &&
                          word->scalar_type() == at::kInt && word->numel() == word::kSize,
                      "check_index: the word is not an int32 tensor of ", int{word::kSize},
                      " elements on the index's device");
  }
  const int64_t count = index.numel();
  TORCH_CHECK_INDEX(size > 0 || count == 0, "the indexed axis is empty, so that no index is valid");
  const c10::cuda::CUDAGuard guard(index.device());
  at::Tensor safe = at::empty(index.sizes(), index.options().dtype(at::kLong));
  if (count == 0) return safe;
  const at::Tensor dense = index.contiguous();
  const auto integer = known ? static_cast<Integer>(index.element_size()) : Integer::kUint8;
  launch_check_index(integer, dense.const_data_ptr(), safe.mutable_data_ptr<int64_t>(), count, size,
                     static_cast<int32_t>(node),
                     word.has_value() ? word->mutable_data_ptr<int32_t>() : nullptr,
                     c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return safe;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("check_index", &tos::cuda::check_index); }
