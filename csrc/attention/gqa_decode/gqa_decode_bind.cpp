#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "attention/gqa_decode/gqa_decode_check.h"
#include "attention/gqa_decode/gqa_decode_launch.h"
#include "core/reals.h"

namespace tos::cuda {

namespace {

// Instructions of the CPU are nobody's concern here.
GqaResult gqa_decode(const at::Tensor& query, const std::optional<at::Tensor>& key,
                     const std::optional<at::Tensor>& value, const at::Tensor& past_key,
                     const at::Tensor& past_value, const at::Tensor& last, int64_t total,
                     const std::optional<at::Tensor>& cos, const std::optional<at::Tensor>& sin,
                     const std::optional<at::Tensor>& position, const std::optional<at::Tensor>& bias,
                     const std::optional<at::Tensor>& sink, int64_t heads, int64_t groups, double scale,
                     int64_t window, double softcap, bool interleaved, bool smooth, int64_t node,
                     const std::optional<at::Tensor>& word, int64_t /*instructions*/,
                     const std::optional<at::Tensor>& query_norm, const std::optional<at::Tensor>& key_norm,
                     double query_epsilon, double key_epsilon, const std::optional<at::Tensor>& counts,
                     bool rolling, const std::optional<at::Tensor>& key_scale,
                     const std::optional<at::Tensor>& value_scale) {
  const c10::cuda::CUDAGuard guard(query.device());
  const GqaInputs inputs{query,         key,         value,    past_key,    past_value, last,       total,
                         cos,           sin,         position, bias,        sink,       heads,      groups,
                         scale,         window,      softcap,  interleaved, smooth,     query_norm, key_norm,
                         query_epsilon, key_epsilon, counts,   rolling,     key_scale,  value_scale};
  const Report report{word::kPositionOutOfRange, static_cast<int32_t>(node), gqa_word(word, query)};
  GqaResult result;
  const GqaDecode step = gqa_step(inputs, result);
  TORCH_CHECK_VALUE(step.width <= kGqaWidestHead, "gqa_decode: heads of ", step.width, " are wider than ",
                    kGqaWidestHead);
  if (step.batch == 0) return result;
  const int64_t rows = step.batch * step.length * step.heads * gqa_parts_of(step);
  const auto floats = query.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor row_max = at::empty({rows}, floats), sum = at::empty({rows}, floats);
  const at::Tensor totals = at::empty({rows, step.width}, floats);
  const GqaScratch scratch{std::get<3>(result).mutable_data_ptr<int64_t>(), row_max.mutable_data_ptr<float>(),
                           sum.mutable_data_ptr<float>(), totals.mutable_data_ptr<float>()};
  const Real real = real_type(query);
  launch_gqa_decode(real, step, scratch, report, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("gqa_decode", &tos::cuda::gqa_decode); }
