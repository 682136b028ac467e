#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "attention/rotary/rotary.cuh"
#include "attention/rotary/rotary_launch.h"

namespace tos::cuda {

namespace {

template <class T>
void launch(const TurnedHeads& heads, int32_t node, int32_t* word, cudaStream_t stream) {
  const Rotary<T> args{static_cast<const T*>(heads.x),
                       static_cast<const T*>(heads.cos),
                       static_cast<const T*>(heads.sin),
                       heads.positions,
                       static_cast<T*>(heads.y),
                       heads.from,
                       heads.to,
                       heads.tokens,
                       heads.length,
                       heads.heads,
                       heads.size,
                       heads.half,
                       heads.limit,
                       heads.counted,
                       heads.interleaved};
  const Geometry g = rotary_geometry(args);
  rotary_kernel<<<g.grid, g.block, g.shared, stream>>>(args, node, word);
}

}  // namespace

void launch_rotary(Real type, const TurnedHeads& heads, int32_t node, int32_t* word, cudaStream_t stream) {
  switch (type) {
    case Real::kFloat:
      return launch<float>(heads, node, word, stream);
    case Real::kHalf:
      return launch<c10::Half>(heads, node, word, stream);
    case Real::kBFloat16:
      return launch<c10::BFloat16>(heads, node, word, stream);
  }
}

}  // namespace tos::cuda
