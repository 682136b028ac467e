#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>

#include "core/reals.h"
#include "elementwise/chain/chain_check.h"
#include "elementwise/chain/elementwise_chain_launch.h"

namespace tos::cuda {

namespace {

// See elementwise_chain.cpp.
at::Tensor& elementwise_chain_out(at::TensorList inputs, at::IntArrayRef program,
                                  at::ArrayRef<double> constants, int64_t /*instructions*/, at::Tensor& out) {
  const at::DimVector shape = chain_shape(inputs);
  ChainedElements chain{};
  chain.program = chain_program(static_cast<int64_t>(inputs.size()), program, constants);
  check_chain_out(inputs, shape, out);
  const c10::cuda::CUDAGuard guard(out.device());
  chain.count = out.numel();
  if (chain.count == 0) return out;
  const ChainInputs<int64_t> sources = chain_inputs<int64_t>(inputs, shape);
  std::copy_n(sources.each, kChainInputs, chain.inputs);
  chain.out = out.mutable_data_ptr();
  const Real real = real_type(out);
  launch_elementwise_chain(real, chain, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor elementwise_chain(at::TensorList inputs, at::IntArrayRef program, at::ArrayRef<double> constants,
                             int64_t instructions) {
  at::Tensor out = chain_result(inputs);
  return elementwise_chain_out(inputs, program, constants, instructions, out);
}

}  // namespace

}  // namespace tos::cuda

TORCH_LIBRARY_IMPL(torch_ort_session, CUDA, m) {
  m.impl("elementwise_chain", &tos::cuda::elementwise_chain);
  m.impl("elementwise_chain.out", &tos::cuda::elementwise_chain_out);
}
