// Chains of elementwise steps in one pass.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "elementwise/chain/chain_check.h"
#include "elementwise/chain/chain_rows.h"

namespace tos {

namespace {

// Elements that are worth a thread, where they go through one row.
constexpr int64_t kGrain = 1 << 15;

at::Tensor& elementwise_chain_out(at::TensorList inputs, at::IntArrayRef program,
                                  at::ArrayRef<double> constants, int64_t instructions, at::Tensor& out) {
  const at::DimVector shape = chain_shape(inputs);
  const ChainProgram rows = chain_program(static_cast<int64_t>(inputs.size()), program, constants);
  const ChainKernel kernel = chain_for(instructions);
  check_chain_out(inputs, shape, out);
  const int64_t count = out.numel();
  if (count == 0) return out;
  const ChainInputs<int64_t> sources = chain_inputs<int64_t>(inputs, shape);
  const ChainJob job{&rows, sources.each, out.mutable_data_ptr(), chain_slots(rows)};
  const Real type = real_type(out);
  const int64_t grain = std::max<int64_t>(kGrain / rows.rows, 2 * kChainBlock);
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    const auto scratch = std::make_unique_for_overwrite<ChainLine[]>(chain_scratch(job));
    kernel(type, job, begin, end, scratch[0].each);
  });
  return out;
}

at::Tensor elementwise_chain(at::TensorList inputs, at::IntArrayRef program, at::ArrayRef<double> constants,
                             int64_t instructions) {
  at::Tensor out = chain_result(inputs);
  return elementwise_chain_out(inputs, program, constants, instructions, out);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("elementwise_chain", &tos::elementwise_chain);
  m.impl("elementwise_chain.out", &tos::elementwise_chain_out);
}
