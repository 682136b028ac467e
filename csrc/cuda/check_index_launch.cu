#include "check_index.cuh"
#include "launch.h"

namespace tos::cuda {

namespace {

template <class Index>
void launch(const void* from, int64_t* to, int64_t count, int64_t size, int32_t node, int32_t* word,
            cudaStream_t stream) {
  const Geometry g = check_index_geometry(count);
  check_index_kernel<<<g.grid, g.block, g.shared, stream>>>(static_cast<const Index*>(from), to, count, size,
                                                            node, word);
}

}  // namespace

void launch_check_index(Integer type, const void* from, int64_t* to, int64_t count, int64_t size,
                        int32_t node, int32_t* word, cudaStream_t stream) {
  switch (type) {
    case Integer::kInt8:
      return launch<int8_t>(from, to, count, size, node, word, stream);
    case Integer::kInt16:
      return launch<int16_t>(from, to, count, size, node, word, stream);
    case Integer::kInt32:
      return launch<int32_t>(from, to, count, size, node, word, stream);
    case Integer::kInt64:
      return launch<int64_t>(from, to, count, size, node, word, stream);
    case Integer::kUint8:
      return launch<uint8_t>(from, to, count, size, node, word, stream);
  }
}

}  // namespace tos::cuda
