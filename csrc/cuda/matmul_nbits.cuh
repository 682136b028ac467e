// Products with weights of 4 or 8 bits in blocks, which few rows read as they lie, and the weights as floats
// for many rows.
#pragma once

#include "device.cuh"
#include "nbits.cuh"
#include "reduce.cuh"

namespace tos::cuda {

template <class T>
struct NbitsProduct {
  NbitsWeight<T> weight;
  const T* x;     // [count, columns]
  const T* bias;  // [rows], or nullptr
  T* y;           // [count, rows]
  int64_t count;
};

// Rows of x that read the weight together, where there are several.
constexpr int kNbitsRows = 4;
// Rows of the weight of one block of threads, a warp for each.
constexpr int kNbitsWarps = 4;

// A warp for each row of the weight, a block for some of them and for some rows of x.
template <int kRows, class T>
Geometry matmul_nbits_geometry(const NbitsProduct<T>& args) {
  return {dim3(static_cast<unsigned>(blocks_for(args.weight.rows, kNbitsWarps)),
               static_cast<unsigned>(blocks_for(args.count, kRows))),
          dim3(kNbitsWarps * kWarp)};
}

template <int kBits, int kRows, class T>
__global__ void __launch_bounds__(kNbitsWarps* kWarp) matmul_nbits_kernel(NbitsProduct<T> args) {
  const NbitsWeight<T>& weight = args.weight;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kNbitsWarps + threadIdx.x / kWarp;
  // A warp leaves as a whole.
  if (row >= weight.rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kRows;
  float total[kRows] = {};
  nbits_times<kBits>(weight, row, args.x, first, args.count, total);
  TOS_UNROLLED
  for (int m = 0; m < kRows; ++m) {
    const float sum = warp_sum(total[m]);
    if (lane == 0 && first + m < args.count) {
      const float bias = args.bias == nullptr ? 0.0f : static_cast<float>(args.bias[row]);
      args.y[(first + m) * weight.rows + row] = static_cast<T>(sum + bias);
    }
  }
}

// A thread for every kNbitsBytes, as long as the grid reaches.
template <int kBits, class T>
Geometry nbits_floats_geometry(const NbitsWeight<T>& weight) {
  constexpr int64_t kThreads = 256, kMostBlocks = 1 << 16;
  const int64_t each = blocks_for(weight.columns, kNbitsBytes * 8 / kBits);
  const int64_t blocks = blocks_for(weight.rows * each, kThreads);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kThreads)};
}

// The weight as floats [rows, columns].
template <int kBits, class T>
__global__ void __launch_bounds__(256) nbits_floats_kernel(NbitsWeight<T> weight, T* out) {
  constexpr int kNumbers = kNbitsBytes * 8 / kBits;
  const int64_t each = blocks_for(weight.columns, kNumbers);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < weight.rows * each;
       i += stride) {
    const int64_t row = i / each, at = i % each;
    const NbitsCodes codes = nbits_codes<kBits>(weight, row)[at];
    const int64_t start = at * kNumbers, block = start / weight.block_size;
    const float scale = static_cast<float>(weight.scales[row * weight.blocks + block]);
    const float zero = nbits_zero<kBits>(weight, row, block);
    TOS_UNROLLED
    for (int k = 0; k < kNumbers; ++k) {
      if (start + k < weight.columns) {
        out[row * weight.columns + start + k] =
            static_cast<T>((nbits_number<kBits>(codes, k) - zero) * scale);
      }
    }
  }
}

}  // namespace tos::cuda
