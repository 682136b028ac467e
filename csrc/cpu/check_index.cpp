// Indices made safe, in one pass: negative ones wrapped, those outside of the axis noted and clamped.
#include "tos/check_index.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "tos/word.h"

namespace tos {

namespace {

// Gives how many are bad. One thread: a pass over the indices is short beside what they pick.
template <typename Index>
int64_t make_safe(const Index* from, int64_t* to, int64_t count, int64_t size) {
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) to[i] = safe_index(from[i], size, bad);
  return bad;
}

template <typename Index>
int64_t first_bad(const Index* from, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = from[i];
    if (value < -size || value >= size) return value;
  }
  return 0;
}

// `word` is absent where nobody asks what was wrong.
at::Tensor check_index(const at::Tensor& index, int64_t size, int64_t node,
                       const std::optional<at::Tensor>& word) {
  TORCH_CHECK_VALUE(c10::isIntegralType(index.scalar_type(), /*includeBool=*/false),
                    "check_index: the index is ", index.scalar_type(), ", not an integer");
  if (word.has_value()) {
    TORCH_CHECK_VALUE(word->is_cpu() && word->is_contiguous() && word->scalar_type() == at::kInt &&
                          word->numel() == word::kSize,
                      "check_index: the word is not an int32 tensor of ", int{word::kSize}, " elements");
  }
  const int64_t count = index.numel();
  TORCH_CHECK_INDEX(size > 0 || count == 0, "the indexed axis is empty, so that no index is valid");
  at::Tensor safe = at::empty(index.sizes(), index.options().dtype(at::kLong));
  if (count == 0) return safe;
  const at::Tensor dense = index.contiguous();
  AT_DISPATCH_INTEGRAL_TYPES(dense.scalar_type(), "check_index", [&] {
    const scalar_t* from = dense.const_data_ptr<scalar_t>();
    const int64_t bad = make_safe(from, safe.mutable_data_ptr<int64_t>(), count, size);
    if (bad != 0 && word.has_value()) {
      word::note(word->mutable_data_ptr<int32_t>(), word::kIndexOutOfRange, static_cast<int32_t>(node),
                 first_bad(from, count, size), -size, size - 1, bad);
    }
  });
  return safe;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("check_index", &tos::check_index); }
