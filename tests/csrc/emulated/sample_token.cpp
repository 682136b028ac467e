#include "sampling/sample_token/sample_token.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

// `rules` holds temperature, top_p; `sizes` holds rows, tokens, top_k, keep and whether it is closed.
template <class T>
const char* sample(int64_t order, const void* scores, int64_t* state, int64_t* token, const int64_t* sizes,
                   const double* rules) {
  return guarded([=] {
    const tos::SampleRules how{static_cast<float>(rules[0]), sizes[2], rules[1], sizes[3], sizes[4] != 0};
    const tos::cuda::SampleToken<T> args{
        static_cast<const T*>(scores), state, token, sizes[0], sizes[1], how};
    const auto g = tos::cuda::sample_token_geometry(args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::sample_token_kernel<T>, g.grid, g.block, g.shared,
                      args);
    host_cuda::launch(host_cuda::Order{order}, tos::cuda::sample_counted_kernel, 1, 1, 0, state);
  });
}

}  // namespace

#define ENTRY(name, type)                                                                          \
  TOS_ENTRY sample_token_##name(int64_t order, const void* scores, int64_t* state, int64_t* token, \
                                const int64_t* sizes, const double* rules) {                       \
    return sample<type>(order, scores, state, token, sizes, rules);                                \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
