// Products with weights of 2, 4 or 8 bits in blocks, which few rows read as they lie, and the weights as
// floats for many rows.
#pragma once

#include "core/device.cuh"
#include "core/reduce.cuh"
#include "linear/weights/nbits.cuh"

namespace tos::cuda {

template <class T>
struct NbitsProduct {
  NbitsWeight weight;
  const T* x;        // [count, columns]
  const void* bias;  // [rows], or nullptr
  Real bias_type;
  T* y;  // [count, rows]
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
  const NbitsWeight& weight = args.weight;
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
      const float bias = args.bias == nullptr ? 0.0f : real_at(args.bias, args.bias_type, row);
      args.y[(first + m) * weight.rows + row] = static_cast<T>(sum + bias);
    }
  }
}

constexpr int kNbitsFloatsThreads = 256;

// A warp for each row, as long as the grid reaches.
inline Geometry nbits_floats_geometry(const NbitsWeight& weight) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = blocks_for(weight.rows, kNbitsFloatsThreads / kWarp);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
          dim3(kNbitsFloatsThreads)};
}

// The weight as floats [rows, columns].
template <int kBits, class T>
__global__ void __launch_bounds__(kNbitsFloatsThreads) nbits_floats_kernel(NbitsWeight weight, T* out) {
  constexpr int kNumbers = kNbitsNumbers<kBits>, kFloats = kNbitsFloats<T>;
  constexpr int kWarps = kNbitsFloatsThreads / kWarp;
  const int pieces = (weight.columns + kNumbers - 1) / kNumbers;
  const bool wide = nbits_are_wide(out, weight.columns);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; row < weight.rows;
       row += stride) {
    T* to = out + row * weight.columns;
    for (int at = static_cast<int>(threadIdx.x % kWarp); at < pieces; at += kWarp) {
      const NbitsPiece<kBits> piece = nbits_piece<kBits>(weight, row, at);
      const int start = at * kNumbers;
      if (wide && start + kNumbers <= weight.columns) {
        TOS_UNROLLED
        for (int i = 0; i < kNumbers; i += kFloats) {
          Together<T, kFloats> numbers;
          TOS_UNROLLED
          for (int j = 0; j < kFloats; ++j)
            numbers.each[j] = static_cast<T>(piece.number[i + j] * piece.scale);
          put_together(to + start + i, numbers);
        }
      } else {
        TOS_UNROLLED
        for (int i = 0; i < kNumbers; ++i) {
          if (start + i < weight.columns) to[start + i] = static_cast<T>(piece.number[i] * piece.scale);
        }
      }
    }
  }
}

}  // namespace tos::cuda
