// One row times a weight of floats, which is read once, in pieces of 16 bytes where it lies so.
#pragma once

#include "core/device.cuh"
#include "core/reduce.cuh"

namespace tos::cuda {

template <class T>
struct Gemv {
  const T* x;       // [rows]
  const T* weight;  // its rows, or its columns where it is turned, lie `stride` apart
  const T* bias;    // [columns], or nullptr
  T* y;             // [columns]
  float* sums;      // [parts, columns] where there are several parts of the rows
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

// Bytes that a thread takes at once, where everything lies at a multiple of that.
constexpr int kGemvBytes = 16;
constexpr int kGemvThreads = 256;
constexpr int kGemvWarps = kGemvThreads / kWarp;
// Pieces that a thread has asked for before it uses the first of them.
constexpr int kGemvAhead = 4;

template <class T>
constexpr int kGemvFloats = kGemvBytes / static_cast<int>(sizeof(T));

template <class T>
bool gemv_is_wide(const Gemv<T>& args, bool turned) {
  const auto whole = [](uint64_t bytes) { return bytes % kGemvBytes == 0; };
  const int64_t beside = turned ? args.rows : args.columns;
  return whole(reinterpret_cast<uintptr_t>(args.weight)) &&
         (!turned || whole(reinterpret_cast<uintptr_t>(args.x))) &&
         whole(static_cast<uint64_t>(args.stride) * sizeof(T)) &&
         whole(static_cast<uint64_t>(beside) * sizeof(T));
}

template <class T>
__device__ __forceinline__ void gemv_deliver(const Gemv<T>& args, int64_t column, float sum) {
  const float bias = args.bias == nullptr ? 0.0f : static_cast<float>(args.bias[column]);
  args.y[column] = static_cast<T>(sum + bias);
}

// A warp for each column of a turned weight where there are many or they are short; else a block.
template <class T>
Geometry gemv_columns_geometry(const Gemv<T>& args) {
  constexpr int64_t kMany = 4096;
  const bool alone = args.columns < kMany && args.rows >= kGemvThreads * kGemvAhead * kGemvFloats<T>;
  const unsigned together = alone ? 1 : kGemvWarps;
  return {dim3(static_cast<unsigned>(blocks_for(args.columns, together))),
          dim3(kGemvThreads / together, together)};
}

// `kEach` floats are taken at once: kGemvFloats where that is possible, or 1.
template <int kEach, class T>
__global__ void __launch_bounds__(kGemvThreads) gemv_columns_kernel(Gemv<T> args) {
  __shared__ float partial[kWarp];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // A warp leaves as a whole, and a block that has one column does not.
  if (column >= args.columns) return;
  const T* w = args.weight + column * args.stride;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kEach;
  int64_t at = static_cast<int64_t>(threadIdx.x) * kEach;
  float part[kGemvAhead] = {};
  for (; at + (kGemvAhead - 1) * step < args.rows; at += kGemvAhead * step) {
    Together<T, kEach> weights[kGemvAhead];
    TOS_UNROLLED
    for (int j = 0; j < kGemvAhead; ++j) weights[j] = taken_together<kEach>(w + at + j * step);
    TOS_UNROLLED
    for (int j = 0; j < kGemvAhead; ++j) {
      const Together<T, kEach> factors = taken_together<kEach>(args.x + at + j * step);
      TOS_UNROLLED
      for (int i = 0; i < kEach; ++i) {
        part[j] += static_cast<float>(weights[j].each[i]) * static_cast<float>(factors.each[i]);
      }
    }
  }
  for (; at < args.rows; at += step) {
    const Together<T, kEach> weights = taken_together<kEach>(w + at);
    const Together<T, kEach> factors = taken_together<kEach>(args.x + at);
    TOS_UNROLLED
    for (int i = 0; i < kEach; ++i) {
      part[0] += static_cast<float>(weights.each[i]) * static_cast<float>(factors.each[i]);
    }
  }
  float sum = (part[0] + part[1]) + (part[2] + part[3]);
  sum = blockDim.x > kWarp ? block_sum(sum, partial) : warp_sum(sum);
  if (threadIdx.x == 0) gemv_deliver(args, column, sum);
}

// How the rows of a weight that is not turned are shared out: parts of some rows each, the last of fewer.
struct GemvParts {
  int64_t count;
  int64_t each;
};

// Columns of a block of threads.
template <int kEach>
constexpr int kGemvTile = kWarp * kEach;

// As many parts as make enough blocks for a device, as long as what is summed later stays little beside the
// weight.
template <int kEach>
GemvParts gemv_parts(int64_t rows, int64_t columns) {
  constexpr int64_t kBlocks = 512, kMostParts = 256, kLeastRows = 64;
  int64_t wanted = kBlocks / blocks_for(columns, kGemvTile<kEach>);
  wanted = wanted < kMostParts ? wanted : kMostParts;
  const int64_t parts_with_work = blocks_for(rows, kLeastRows);
  wanted = wanted < parts_with_work ? wanted : parts_with_work;
  if (wanted <= 1) return {1, rows};
  const int64_t each = blocks_for(rows, wanted);
  return {blocks_for(rows, each), each};
}

template <int kEach>
Geometry gemv_rows_geometry(int64_t columns, const GemvParts& parts) {
  return {
      dim3(static_cast<unsigned>(blocks_for(columns, kGemvTile<kEach>)), static_cast<unsigned>(parts.count)),
      dim3(kGemvThreads)};
}

// A block for a tile of the columns and a part of the rows, of which its warps take turns.
template <int kEach, class T>
__global__ void __launch_bounds__(kGemvThreads) gemv_rows_kernel(Gemv<T> args, GemvParts parts) {
  __shared__ float held[kGemvWarps][kGemvTile<kEach>];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kGemvTile<kEach>;
  const int64_t column = tile + lane * kEach;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * parts.each;
  const int64_t last = first + parts.each < args.rows ? first + parts.each : args.rows;
  float total[kEach] = {};
  // A piece lies within the columns as a whole, or behind them.
  if (column < args.columns) {
    const T* w = args.weight + column;
    int64_t k = first + warp;
    for (; k + (kGemvAhead - 1) * kGemvWarps < last; k += kGemvAhead * kGemvWarps) {
      Together<T, kEach> weights[kGemvAhead];
      TOS_UNROLLED
      for (int j = 0; j < kGemvAhead; ++j) {
        weights[j] = taken_together<kEach>(w + (k + j * kGemvWarps) * args.stride);
      }
      TOS_UNROLLED
      for (int j = 0; j < kGemvAhead; ++j) {
        const float x = static_cast<float>(args.x[k + j * kGemvWarps]);
        TOS_UNROLLED
        for (int i = 0; i < kEach; ++i) total[i] += x * static_cast<float>(weights[j].each[i]);
      }
    }
    for (; k < last; k += kGemvWarps) {
      const Together<T, kEach> weights = taken_together<kEach>(w + k * args.stride);
      const float x = static_cast<float>(args.x[k]);
      TOS_UNROLLED
      for (int i = 0; i < kEach; ++i) total[i] += x * static_cast<float>(weights.each[i]);
    }
  }
  TOS_UNROLLED
  for (int i = 0; i < kEach; ++i) held[warp][lane * kEach + i] = total[i];
  __syncthreads();
  const int place = static_cast<int>(threadIdx.x);
  if (place >= kGemvTile<kEach> || tile + place >= args.columns) return;
  float sum = 0.0f;
  TOS_UNROLLED
  for (int i = 0; i < kGemvWarps; ++i) sum += held[i][place];
  if (parts.count == 1) {
    gemv_deliver(args, tile + place, sum);
  } else {
    args.sums[blockIdx.y * args.columns + tile + place] = sum;
  }
}

// A block for some columns, a warp beside the other.
template <class T>
Geometry gemv_sums_geometry(const Gemv<T>& args) {
  return {dim3(static_cast<unsigned>(blocks_for(args.columns, kWarp))), dim3(kGemvThreads)};
}

// Adds up the parts, each warp those that are kGemvWarps apart.
template <class T>
__global__ void __launch_bounds__(kGemvThreads) gemv_sums_kernel(Gemv<T> args, int64_t parts) {
  __shared__ float held[kGemvWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0f;
  if (column < args.columns) {
    for (int64_t part = warp; part < parts; part += kGemvWarps)
      sum += args.sums[part * args.columns + column];
  }
  held[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= args.columns) return;
  float all = 0.0f;
  TOS_UNROLLED
  for (int i = 0; i < kGemvWarps; ++i) all += held[i][lane];
  gemv_deliver(args, column, all);
}

}  // namespace tos::cuda
