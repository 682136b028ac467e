// Numbers made safe, in one pass: negative indices wrapped, what is outside of its bounds noted and clamped.
#include "index/check_index/check_index.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "core/word.h"

namespace tos {

namespace {

// Gives how many are bad. One thread: a pass over the indices is short beside what they pick.
template <typename Value, class Rule>
int64_t make_safe(const Value* from, int64_t* to, int64_t count, Rule rule) {
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) to[i] = rule.safe(from[i], bad);
  return bad;
}

template <typename Value, class Rule>
int64_t first_bad(const Value* from, int64_t count, Rule rule) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = from[i];
    if (value < rule.low() || value > rule.high()) return value;
  }
  return 0;
}

// `word` is absent where nobody asks what was wrong.
template <class Rule>
at::Tensor checked(const char* op, const at::Tensor& values, Rule rule, int64_t flag, int64_t node,
                   const std::optional<at::Tensor>& word) {
  TORCH_CHECK_VALUE(c10::isIntegralType(values.scalar_type(), /*includeBool=*/false), op,
                    ": what is checked is ", values.scalar_type(), ", not an integer");
  if (word.has_value()) {
    TORCH_CHECK_VALUE(word->is_cpu() && word->is_contiguous() && word->scalar_type() == at::kInt &&
                          word->numel() == word::kSize,
                      op, ": the word is not an int32 tensor of ", int{word::kSize}, " elements");
  }
  const int64_t count = values.numel();
  at::Tensor safe = at::empty(values.sizes(), values.options().dtype(at::kLong));
  if (count == 0) return safe;
  const at::Tensor dense = values.contiguous();
  AT_DISPATCH_INTEGRAL_TYPES(dense.scalar_type(), "check", [&] {
    const scalar_t* from = dense.const_data_ptr<scalar_t>();
    const int64_t bad = make_safe(from, safe.mutable_data_ptr<int64_t>(), count, rule);
    if (bad != 0 && word.has_value()) {
      word::note(word->mutable_data_ptr<int32_t>(), static_cast<word::Flag>(flag), static_cast<int32_t>(node),
                 first_bad(from, count, rule), rule.low(), rule.high(), bad);
    }
  });
  return safe;
}

at::Tensor check_index(const at::Tensor& index, int64_t size, int64_t node,
                       const std::optional<at::Tensor>& word) {
  TORCH_CHECK_INDEX(size > 0 || index.numel() == 0, "the indexed axis is empty, so that no index is valid");
  return checked("check_index", index, Wrapping{size}, word::kIndexOutOfRange, node, word);
}

at::Tensor check_range(const at::Tensor& values, int64_t low, int64_t high, int64_t flag, int64_t node,
                       const std::optional<at::Tensor>& word) {
  TORCH_CHECK_INDEX(low <= high || values.numel() == 0, "there is nothing, so that no number is valid");
  return checked("check_range", values, Within{low, high}, flag, node, word);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("check_index", &tos::check_index);
  m.impl("check_range", &tos::check_range);
}
