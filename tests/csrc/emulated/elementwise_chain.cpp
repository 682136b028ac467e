#include "elementwise/chain/elementwise_chain.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

// `program` holds rows as the op takes them. `sizes` holds how many inputs, constants, rows and elements
// there are, then of each input its dimensions, and as many sizes and strides as an input can have.
template <class T, class Index>
const char* chain(int64_t order, const int64_t* program, const int64_t* sizes, const float* constants,
                  const void* const (&data)[3], void* out) {
  return guarded([=] {
    tos::cuda::ElementwiseChain<Index> args{};
    args.program.inputs = static_cast<int>(sizes[0]);
    args.program.constants = static_cast<int>(sizes[1]);
    args.program.rows = static_cast<int>(sizes[2]);
    args.count = static_cast<Index>(sizes[3]);
    for (int i = 0; i < args.program.constants; ++i) args.program.constant[i] = constants[i];
    for (int row = 0; row < args.program.rows; ++row) {
      const int64_t* numbers = program + 4 * row;
      args.program.row[row].code = static_cast<int8_t>(numbers[0]);
      for (int i = 0; i < 3; ++i) args.program.row[row].operands[i] = static_cast<int8_t>(numbers[1 + i]);
    }
    const int64_t* given = sizes + 4;
    for (int i = 0; i < args.program.inputs; ++i, given += 1 + 2 * tos::kChainDims) {
      args.inputs[i].data = data[i];
      args.inputs[i].dims = static_cast<int>(given[0]);
      for (int d = 0; d < args.inputs[i].dims; ++d) {
        args.inputs[i].size[d] = static_cast<Index>(given[1 + d]);
        args.inputs[i].stride[d] = static_cast<Index>(given[1 + tos::kChainDims + d]);
      }
    }
    args.out = out;
    args.slots = tos::chain_slots(args.program);
    const auto g = tos::cuda::chain_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::chain_kernel<T, Index>, g.grid, g.block, g.shared,
                      args);
  });
}

}  // namespace

#define ENTRY(name, type, index)                                                                          \
  TOS_ENTRY elementwise_chain_##name(int64_t order, const int64_t* program, const int64_t* sizes,         \
                                     const float* constants, const void* a, const void* b, const void* c, \
                                     void* out) {                                                         \
    return chain<type, index>(order, program, sizes, constants, {a, b, c}, out);                          \
  }

ENTRY(float32, float, uint32_t)
ENTRY(float16, c10::Half, uint32_t)
ENTRY(bfloat16, c10::BFloat16, uint32_t)
ENTRY(float32_far, float, uint64_t)
