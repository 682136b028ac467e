// (x + skip + bias), and it divided by the root of its mean square and scaled, row by row in one pass.
#pragma once

#include "core/device.cuh"
#include "core/reduce.cuh"

namespace tos::cuda {

// A row of x, skip, total and y has `width` elements. `skip` and `bias` may be nullptr, so may `total`, which
// takes the sum, and `inverse`, which takes the inverse root of each row.
template <class T>
struct SkipRmsNorm {
  const T* x;
  const T* skip;
  const T* bias;   // [width]
  const T* gamma;  // [width]
  T* total;
  T* y;
  float* inverse;
  int64_t rows;
  int64_t width;
  float epsilon;
};

// A block a row, with as many threads as there is work for.
template <class T>
Geometry skip_rms_norm_geometry(const SkipRmsNorm<T>& args) {
  constexpr int64_t kMostThreads = 512;
  const int64_t wanted = blocks_for(args.width, 2 * kWarp) * kWarp;
  return {dim3(static_cast<unsigned>(args.rows)),
          dim3(static_cast<unsigned>(wanted < kMostThreads ? wanted : kMostThreads))};
}

template <class T>
__global__ void __launch_bounds__(512) skip_rms_norm_kernel(SkipRmsNorm<T> args) {
  __shared__ float partial[kWarp];
  const int64_t start = blockIdx.x * args.width;
  // Where each thread reads its sums again, already rounded.
  T* kept = args.total != nullptr ? args.total : args.y;
  const bool plain = args.skip == nullptr && args.bias == nullptr && args.total == nullptr;
  float squares = 0.0f;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    float sum = static_cast<float>(args.x[start + i]);
    // Rounded after each addition, as torch adds tensors.
    if (args.skip != nullptr) {
      sum = static_cast<float>(static_cast<T>(sum + static_cast<float>(args.skip[start + i])));
    }
    if (args.bias != nullptr)
      sum = static_cast<float>(static_cast<T>(sum + static_cast<float>(args.bias[i])));
    if (!plain) kept[start + i] = static_cast<T>(sum);
    squares += sum * sum;
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(args.width);
  const float scale = rsqrtf(mean + args.epsilon);
  const T* from = plain ? args.x : kept;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float sum = static_cast<float>(from[start + i]);
    args.y[start + i] = static_cast<T>(sum * scale * static_cast<float>(args.gamma[i]));
  }
  if (args.inverse != nullptr && threadIdx.x == 0) args.inverse[blockIdx.x] = scale;
}

}  // namespace tos::cuda
