#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <limits>

#include "elementwise/chain/elementwise_chain.cuh"
#include "elementwise/chain/elementwise_chain_launch.h"

namespace tos::cuda {

namespace {

template <class T, class Index>
void launch(const ChainedElements& chain, cudaStream_t stream) {
  ElementwiseChain<Index> args{};
  args.program = chain.program;
  args.slots = chain_slots(chain.program);
  args.out = chain.out;
  args.count = static_cast<Index>(chain.count);
  for (int i = 0; i < chain.program.inputs; ++i) {
    args.inputs[i].data = chain.inputs[i].data;
    args.inputs[i].dims = chain.inputs[i].dims;
    for (int d = 0; d < chain.inputs[i].dims; ++d) {
      args.inputs[i].size[d] = static_cast<Index>(chain.inputs[i].size[d]);
      args.inputs[i].stride[d] = static_cast<Index>(chain.inputs[i].stride[d]);
    }
  }
  const Geometry g = chain_geometry(args);
  chain_kernel<T><<<g.grid, g.block, g.shared, stream>>>(args);
}

// Whether all numbers of elements, and of those that a last step of the grid passes, are small.
bool small(const ChainedElements& chain) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  bool fits = chain.count <= kMost;
  for (int i = 0; i < chain.program.inputs; ++i) {
    int64_t last = 0;
    for (int d = 0; d < chain.inputs[i].dims; ++d) {
      last += (chain.inputs[i].size[d] - 1) * chain.inputs[i].stride[d];
    }
    fits &= last <= kMost;
  }
  return fits;
}

template <class T>
void launch_type(const ChainedElements& chain, cudaStream_t stream) {
  if (small(chain)) return launch<T, uint32_t>(chain, stream);
  launch<T, uint64_t>(chain, stream);
}

}  // namespace

void launch_elementwise_chain(Real type, const ChainedElements& chain, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch_type<float>(chain, stream);
    case Real::kHalf:
      return launch_type<c10::Half>(chain, stream);
    case Real::kBFloat16:
      return launch_type<c10::BFloat16>(chain, stream);
  }
}

}  // namespace tos::cuda
