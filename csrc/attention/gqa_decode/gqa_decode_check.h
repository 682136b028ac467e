#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "attention/gqa_decode/gqa_decode.h"
#include "core/word.h"

// The tensors of a step of GroupQueryAttention, checked.
namespace tos {

struct GqaInputs {
  const at::Tensor& query;
  const std::optional<at::Tensor>& key;
  const std::optional<at::Tensor>& value;
  const at::Tensor& past_key;
  const at::Tensor& past_value;
  const at::Tensor& last;
  int64_t total;
  const std::optional<at::Tensor>& cos;
  const std::optional<at::Tensor>& sin;
  const std::optional<at::Tensor>& position;
  const std::optional<at::Tensor>& bias;
  const std::optional<at::Tensor>& sink;
  int64_t heads;
  int64_t groups;
  double scale;
  int64_t window;
  double softcap;
  bool interleaved;
  bool smooth;
  const std::optional<at::Tensor>& query_norm;
  const std::optional<at::Tensor>& key_norm;
  double query_epsilon;
  double key_epsilon;
  const std::optional<at::Tensor>& counts;
  bool rolling;
  const std::optional<at::Tensor>& key_scale;
  const std::optional<at::Tensor>& value_scale;

  GqaHeld held() const {
    if (!key_scale.has_value()) return GqaHeld::kReals;
    return past_key.scalar_type() == at::kByte ? GqaHeld::kNibbles : GqaHeld::kBytes;
  }
  // How many numbers an element of the caches holds.
  int64_t each() const { return held() == GqaHeld::kNibbles ? 2 : 1; }
};

// The result, the new rows of keys and values, and where those of each sample belong: see gqa_tell.
using GqaResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline int32_t* gqa_word(const std::optional<at::Tensor>& word, const at::Tensor& query) {
  if (!word.has_value()) return nullptr;
  TORCH_CHECK_VALUE(word->device() == query.device() && word->is_contiguous() &&
                        word->scalar_type() == at::kInt && word->numel() == word::kSize,
                    "gqa_decode: the word is not an int32 tensor of ", int{word::kSize}, " elements");
  return word->mutable_data_ptr<int32_t>();
}

inline void gqa_check(const GqaInputs& in) {
  const auto dense = [&](const char* name, const at::Tensor& part, int64_t rank, at::ScalarType kind) {
    TORCH_CHECK_VALUE(
        part.scalar_type() == kind && part.device() == in.query.device() && part.dim() == rank &&
            (part.numel() == 0 || part.size(-1) == 1 || part.stride(-1) == 1),
        "gqa_decode: ", name, " is not of type ", kind, " on the query's device with a dense last axis");
  };
  const auto like = [&](const char* name, const at::Tensor& part, int64_t rank) {
    dense(name, part, rank, in.query.scalar_type());
  };
  const at::ScalarType type = in.query.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
                    "gqa_decode: the query is ", type, ", not float32, float16 or bfloat16");
  like("the query", in.query, 3);
  TORCH_CHECK_VALUE(in.groups > 0 && in.heads > 0 && in.heads % in.groups == 0, "gqa_decode: ", in.heads,
                    " heads do not share ", in.groups, " heads of keys");
  TORCH_CHECK_VALUE(in.key.has_value() == in.value.has_value(), "gqa_decode: key and value come together");
  const int64_t batch = in.query.size(0), length = in.query.size(1);
  const int64_t width = in.past_key.size(-1) * in.each();
  const int64_t parts = in.key.has_value() ? in.heads : in.heads + 2 * in.groups;
  TORCH_CHECK_VALUE(width > 0 && length > 0 && in.query.size(2) == parts * width,
                    "gqa_decode: the query is not ", parts, " heads of ", width);
  if (in.key.has_value()) {
    like("the key", *in.key, 3);
    like("the value", *in.value, 3);
    const std::vector<int64_t> wanted{batch, length, in.groups * width};
    TORCH_CHECK_VALUE(in.key->sizes() == wanted && in.value->sizes() == wanted,
                      "gqa_decode: key and value are not of shape ", wanted);
  }
  TORCH_CHECK_VALUE(in.key_scale.has_value() == in.value_scale.has_value(),
                    "gqa_decode: the scales of keys and values come together");
  const at::ScalarType kind = in.held() == GqaHeld::kReals     ? type
                              : in.held() == GqaHeld::kNibbles ? at::kByte
                                                               : at::kChar;
  dense("past_key", in.past_key, 4, kind);
  dense("past_value", in.past_value, 4, kind);
  TORCH_CHECK_VALUE(in.past_key.size(0) == batch && in.past_key.size(1) == in.groups &&
                        in.past_key.sizes() == in.past_value.sizes(),
                    "gqa_decode: the caches do not fit the query");
  const auto whole = [&](const char* name, const at::Tensor& part, at::ScalarType kind, int64_t count) {
    TORCH_CHECK_VALUE(part.scalar_type() == kind && part.device() == in.query.device() &&
                          part.is_contiguous() && part.numel() == count,
                      "gqa_decode: ", name, " is not ", count, " dense elements of ", kind);
  };
  whole("the lengths", in.last, at::kInt, batch);
  if (in.counts.has_value()) whole("the counts", *in.counts, at::kInt, batch);
  TORCH_CHECK_VALUE(!in.rolling || (in.window > 0 && in.window <= in.past_key.size(2)),
                    "gqa_decode: a cache of ", in.past_key.size(2), " rows cannot hold a window of ",
                    in.window);
  TORCH_CHECK_VALUE(in.cos.has_value() == in.sin.has_value(), "gqa_decode: cosines and sines come together");
  if (in.cos.has_value()) {
    TORCH_CHECK_VALUE(in.cos->dim() == 2 && in.cos->size(0) > 0 && 2 * in.cos->size(1) <= width,
                      "gqa_decode: the cosines do not fit heads of ", width);
    whole("the cosines", *in.cos, type, in.cos->numel());
    whole("the sines", *in.sin, type, in.cos->numel());
    if (in.position.has_value()) whole("the positions", *in.position, at::kLong, batch * length);
  }
  if (in.bias.has_value()) {
    like("the bias", *in.bias, 4);
    const auto fits = [&](int64_t axis, int64_t size) {
      return in.bias->size(axis) == 1 || in.bias->size(axis) == size;
    };
    // New rows are in sight of each other even where the total cannot be.
    TORCH_CHECK_VALUE(fits(0, batch) && fits(1, in.heads) && fits(2, length) &&
                          in.bias->size(3) >= std::max(in.total, length),
                      "gqa_decode: the bias does not fit");
  }
  if (in.sink.has_value()) whole("the sink", *in.sink, type, in.heads);
  for (const std::optional<at::Tensor>* scale : {&in.key_scale, &in.value_scale}) {
    if (scale->has_value()) {
      whole("a scale", **scale, at::kFloat, (*scale)->numel() == 1 ? 1 : in.groups * width);
    }
  }
  if (in.query_norm.has_value()) whole("the queries' norm", *in.query_norm, type, width);
  if (in.key_norm.has_value()) whole("the keys' norm", *in.key_norm, type, width);
}

// Checks everything, and allocates the results; addresses are those of tensors that stay alive outside.
inline GqaDecode gqa_step(const GqaInputs& in, GqaResult& result) {
  gqa_check(in);
  const at::Tensor &q = in.query, &past_key = in.past_key, &past_value = in.past_value;
  const int64_t batch = q.size(0), length = q.size(1), width = past_key.size(3) * in.each();
  const auto dense = q.options().memory_format(at::MemoryFormat::Contiguous);
  const std::vector<int64_t> fresh{batch, in.groups, length, past_key.size(3)};
  const auto held = dense.dtype(past_key.scalar_type());
  result = {at::empty({batch, length, in.heads * width}, dense), at::empty(fresh, held),
            at::empty(fresh, held), at::Tensor()};
  const auto address = [](const std::optional<at::Tensor>& part) {
    return part.has_value() ? part->const_data_ptr() : nullptr;
  };
  const auto behind = [&](int64_t heads) {
    const char* start = static_cast<const char*>(q.const_data_ptr());
    return static_cast<const void*>(start + heads * width * static_cast<int64_t>(q.element_size()));
  };
  const auto stride = [&](int64_t axis) {
    return in.bias.has_value() && in.bias->size(axis) != 1 ? in.bias->stride(axis) : 0;
  };
  const at::Tensor &k = in.key.has_value() ? *in.key : q, &v = in.value.has_value() ? *in.value : q;
  GqaDecode step{};
  step.counts = in.counts.has_value() ? in.counts->const_data_ptr<int32_t>() : nullptr;
  step.rolling = in.rolling;
  std::vector<int64_t> places{batch};
  if (gqa_places(step) != kGqaWhole) places.push_back(gqa_places(step));
  std::get<3>(result) = at::empty(places, dense.dtype(at::kLong));
  step.query = q.const_data_ptr();
  step.key = in.key.has_value() ? k.const_data_ptr() : behind(in.heads);
  step.value = in.value.has_value() ? v.const_data_ptr() : behind(in.heads + in.groups);
  step.past_key = past_key.const_data_ptr(), step.past_value = past_value.const_data_ptr();
  step.last = in.last.const_data_ptr<int32_t>();
  step.cos = address(in.cos), step.sin = address(in.sin);
  step.position = in.position.has_value() ? in.position->const_data_ptr<int64_t>() : nullptr;
  step.bias = address(in.bias), step.sink = address(in.sink);
  step.query_norm = address(in.query_norm), step.key_norm = address(in.key_norm);
  step.query_epsilon = static_cast<float>(in.query_epsilon);
  step.key_epsilon = static_cast<float>(in.key_epsilon);
  step.y = std::get<0>(result).mutable_data_ptr();
  step.fresh_key = std::get<1>(result).mutable_data_ptr();
  step.fresh_value = std::get<2>(result).mutable_data_ptr();
  step.batch = batch, step.length = length, step.heads = in.heads, step.groups = in.groups;
  step.width = width, step.capacity = past_key.size(2), step.total = in.total, step.window = in.window;
  step.angles = in.cos.has_value() ? in.cos->size(1) : 0;
  step.positions = in.cos.has_value() ? in.cos->size(0) : 0;
  step.query_batch = q.stride(0), step.query_row = q.stride(1);
  step.key_batch = k.stride(0), step.key_row = k.stride(1);
  step.value_batch = v.stride(0), step.value_row = v.stride(1);
  const int64_t each = in.each();
  step.past_key_batch = past_key.stride(0) * each, step.past_key_head = past_key.stride(1) * each;
  step.past_key_row = past_key.stride(2) * each;
  step.past_value_batch = past_value.stride(0) * each, step.past_value_head = past_value.stride(1) * each;
  step.past_value_row = past_value.stride(2) * each;
  step.held = in.held();
  if (in.key_scale.has_value()) {
    step.key_scale = in.key_scale->const_data_ptr<float>();
    step.value_scale = in.value_scale->const_data_ptr<float>();
    step.key_scale_step = in.key_scale->numel() == 1 ? 0 : 1;
    step.value_scale_step = in.value_scale->numel() == 1 ? 0 : 1;
  }
  step.bias_batch = stride(0), step.bias_head = stride(1), step.bias_row = stride(2);
  step.scale = static_cast<float>(in.scale), step.softcap = static_cast<float>(in.softcap);
  step.interleaved = in.interleaved, step.smooth = in.smooth;
  return step;
}

}  // namespace tos
