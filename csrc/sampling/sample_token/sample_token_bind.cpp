#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "core/reals.h"
#include "sampling/sample_token/sample_token_check.h"
#include "sampling/sample_token/sample_token_launch.h"

namespace tos::cuda {

namespace {

// See sample_token.cpp.
at::Tensor sample_token(const at::Tensor& scores, at::Tensor& state, double temperature, int64_t top_k,
                        double top_p, int64_t keep, bool closed) {
  const SampleRules rules = check_sample(scores, state, temperature, top_k, top_p, keep, closed);
  const c10::cuda::CUDAGuard guard(scores.device());
  at::Tensor token = at::empty({scores.size(0)}, scores.options().dtype(at::kLong));
  if (scores.size(0) == 0) return token;
  const at::Tensor dense = scores.contiguous();
  const Real real = real_type(scores);
  launch_sample_token(real, dense.const_data_ptr(), state.mutable_data_ptr<int64_t>(),
                      token.mutable_data_ptr<int64_t>(), scores.size(0), scores.size(1), rules,
                      c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return token;
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) { m.impl("sample_token", &tos::cuda::sample_token); }
