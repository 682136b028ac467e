#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "core/word.h"
#include "index/check_index/check_index_launch.h"

namespace tos::cuda {

namespace {

// See check_index.cpp.
template <class Rule, class Launch>
at::Tensor checked(const char* op, const at::Tensor& values, Rule rule, Launch launch, int64_t flag,
                   int64_t node, const std::optional<at::Tensor>& word) {
  const at::ScalarType type = values.scalar_type();
  const bool known = type == at::kLong || type == at::kInt || type == at::kShort || type == at::kChar;
  TORCH_CHECK_VALUE(known || type == at::kByte, op, ": what is checked is ", type, ", not an integer");
  if (word.has_value()) {
    TORCH_CHECK_VALUE(word->device() == values.device() && word->is_contiguous() &&
                          word->scalar_type() == at::kInt && word->numel() == word::kSize,
                      op, ": the word is not an int32 tensor of ", int{word::kSize},
                      " elements on the device of what is checked");
  }
  const c10::cuda::CUDAGuard guard(values.device());
  at::Tensor safe = at::empty(values.sizes(), values.options().dtype(at::kLong));
  if (values.numel() == 0) return safe;
  const at::Tensor dense = values.contiguous();
  const auto integer = known ? static_cast<Integer>(values.element_size()) : Integer::kUint8;
  launch({integer, dense.const_data_ptr(), safe.mutable_data_ptr<int64_t>(), dense.numel()}, rule,
         {static_cast<word::Flag>(flag), static_cast<int32_t>(node),
          word.has_value() ? word->mutable_data_ptr<int32_t>() : nullptr},
         c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return safe;
}

at::Tensor check_index(const at::Tensor& index, int64_t size, int64_t node,
                       const std::optional<at::Tensor>& word) {
  TORCH_CHECK_INDEX(size > 0 || index.numel() == 0, "the indexed axis is empty, so that no index is valid");
  return checked("check_index", index, Wrapping{size}, launch_check_index, word::kIndexOutOfRange, node,
                 word);
}

at::Tensor check_range(const at::Tensor& values, int64_t low, int64_t high, int64_t flag, int64_t node,
                       const std::optional<at::Tensor>& word) {
  TORCH_CHECK_INDEX(low <= high || values.numel() == 0, "there is nothing, so that no number is valid");
  return checked("check_range", values, Within{low, high}, launch_check_range, flag, node, word);
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) {
  m.impl("check_index", &tos::cuda::check_index);
  m.impl("check_range", &tos::cuda::check_range);
}
