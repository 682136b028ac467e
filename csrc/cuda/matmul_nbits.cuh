// Products with weights of 4 or 8 bits in blocks, which few rows read as they lie, and the weights as floats
// for many rows.
#pragma once

#include "device.cuh"
#include "reduce.cuh"

namespace tos::cuda {

// A weight as QuantizedWeight of tos/weights.h has it; its codes lie at a multiple of 8 bytes.
template <class T>
struct NbitsWeight {
  const uint8_t* codes;
  const T* scales;
  const void* zeros;  // T, or packed bytes; nullptr is half the range
  bool packed_zeros;
  int64_t rows;
  int64_t columns;
  int64_t blocks;
  int64_t block_size;
};

template <class T>
struct NbitsProduct {
  NbitsWeight<T> weight;
  const T* x;     // [count, columns]
  const T* bias;  // [rows], or nullptr
  T* y;           // [count, rows]
  int64_t count;
};

// Bytes that a thread takes at once: never more than a block of 16 numbers has.
constexpr int kNbitsBytes = 8;
// Rows of x that read the weight together, where there are several.
constexpr int kNbitsRows = 4;
// Rows of the weight of one block of threads, a warp for each.
constexpr int kNbitsWarps = 4;

struct alignas(kNbitsBytes) NbitsCodes {
  uint32_t word[2];
};

// A warp for each row of the weight, a block for some of them and for some rows of x.
template <int kRows, class T>
Geometry matmul_nbits_geometry(const NbitsProduct<T>& args) {
  return {dim3(static_cast<unsigned>(blocks_for(args.weight.rows, kNbitsWarps)),
               static_cast<unsigned>(blocks_for(args.count, kRows))),
          dim3(kNbitsWarps * kWarp)};
}

template <int kBits, class T>
__device__ __forceinline__ float nbits_zero(const NbitsWeight<T>& weight, int64_t row, int64_t block) {
  if (weight.zeros == nullptr) return 1 << (kBits - 1);
  if (!weight.packed_zeros) {
    return static_cast<float>(static_cast<const T*>(weight.zeros)[row * weight.blocks + block]);
  }
  constexpr int64_t kEach = 8 / kBits;
  const int64_t row_bytes = blocks_for(weight.blocks, kEach);
  const int byte = static_cast<const uint8_t*>(weight.zeros)[row * row_bytes + block / kEach];
  return static_cast<float>((byte >> (block % kEach * kBits)) & ((1 << kBits) - 1));
}

// Number `i` of those that a thread took.
template <int kBits>
__device__ __forceinline__ float nbits_number(const NbitsCodes& codes, int i) {
  constexpr int kEach = 32 / kBits;
  return static_cast<float>((codes.word[i / kEach] >> (i % kEach * kBits)) & ((1u << kBits) - 1));
}

template <int kBits, class T>
__device__ __forceinline__ const NbitsCodes* nbits_codes(const NbitsWeight<T>& weight, int64_t row) {
  const int64_t row_bytes = weight.blocks * weight.block_size * kBits / 8;
  return reinterpret_cast<const NbitsCodes*>(weight.codes + row * row_bytes);
}

template <int kBits, int kRows, class T>
__global__ void __launch_bounds__(kNbitsWarps* kWarp) matmul_nbits_kernel(NbitsProduct<T> args) {
  constexpr int kNumbers = kNbitsBytes * 8 / kBits;
  const NbitsWeight<T>& weight = args.weight;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kNbitsWarps + threadIdx.x / kWarp;
  // A warp leaves as a whole.
  if (row >= weight.rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kRows;
  const NbitsCodes* from = nbits_codes<kBits>(weight, row);
  float total[kRows] = {};
  for (int64_t at = lane; at * kNumbers < weight.columns; at += kWarp) {
    const NbitsCodes codes = from[at];
    const int64_t start = at * kNumbers, block = start / weight.block_size;
    const float scale = static_cast<float>(weight.scales[row * weight.blocks + block]);
    const float zero = nbits_zero<kBits>(weight, row, block);
    TOS_UNROLLED
    for (int m = 0; m < kRows; ++m) {
      // Rows that are not there are the last one again, and go nowhere.
      const int64_t place = first + m < args.count ? first + m : args.count - 1;
      const T* x = args.x + place * weight.columns + start;
      float part = 0.0f;
      TOS_UNROLLED
      for (int i = 0; i < kNumbers; ++i) {
        if (start + i < weight.columns) {
          part += (nbits_number<kBits>(codes, i) - zero) * static_cast<float>(x[i]);
        }
      }
      total[m] += part * scale;
    }
  }
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
