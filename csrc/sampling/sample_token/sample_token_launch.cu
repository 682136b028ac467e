#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "sampling/sample_token/sample_token.cuh"
#include "sampling/sample_token/sample_token_launch.h"

namespace tos::cuda {

namespace {

template <class T>
void launch(const void* scores, int64_t* state, int64_t* token, int64_t rows, int64_t size,
            const SampleRules& rules, cudaStream_t stream) {
  const SampleToken<T> args{static_cast<const T*>(scores), state, token, rows, size, rules};
  const Geometry g = sample_token_geometry(args);
  sample_token_kernel<<<g.grid, g.block, g.shared, stream>>>(args);
  sample_counted_kernel<<<1, 1, 0, stream>>>(state);
}

}  // namespace

void launch_sample_token(Real type, const void* scores, int64_t* state, int64_t* token, int64_t rows,
                         int64_t size, const SampleRules& rules, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch<float>(scores, state, token, rows, size, rules, stream);
    case Real::kHalf:
      return launch<c10::Half>(scores, state, token, rows, size, rules, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(scores, state, token, rows, size, rules, stream);
  }
}

}  // namespace tos::cuda
