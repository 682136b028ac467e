#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

#include "attention/rotary/rotary_check.h"
#include "attention/rotary/rotary_launch.h"
#include "core/reals.h"

namespace tos::cuda {

namespace {

// See rotary.cpp.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const std::optional<at::Tensor>& positions, int64_t heads, bool interleaved, int64_t node,
                  const std::optional<at::Tensor>& word, int64_t /*instructions*/) {
  const RotarySizes sizes = check_rotary(x, cos, sin, positions, heads, word);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  if (x.numel() == 0) return y;
  const TurnedHeads turned{x.const_data_ptr(),
                           cos.const_data_ptr(),
                           sin.const_data_ptr(),
                           positions.has_value() ? positions->const_data_ptr<int64_t>() : nullptr,
                           y.mutable_data_ptr(),
                           sizes.from,
                           sizes.to,
                           sizes.tokens(),
                           sizes.length,
                           sizes.heads,
                           sizes.size,
                           sizes.width / 2,
                           cos.size(0),
                           sizes.counted,
                           interleaved};
  const Real real = real_type(x);
  launch_rotary(real, turned, static_cast<int32_t>(node),
                word.has_value() ? word->mutable_data_ptr<int32_t>() : nullptr,
                c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("rotary", &tos::cuda::rotary); }
