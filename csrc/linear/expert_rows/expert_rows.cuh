// Rows of activations, each times the weight of an expert of its own, of which only the weights that were
// chosen are read. Who was chosen is read on the device, so that a recorded launch serves every choice.
#pragma once

#include "core/device.cuh"
#include "core/reduce.cuh"
#include "linear/weights/nbits.cuh"

namespace tos::cuda {

// What is multiplied by the weights [count, rows, columns] of all experts.
template <class T>
struct ExpertRoutes {
  const T* x;              // [routes, columns]
  const int64_t* experts;  // [routes]; one that does not exist is the nearest that does
  const void* bias;        // [count, rows], or nullptr
  Real bias_type;
  T* y;  // [routes, rows]
  int64_t routes;
  int64_t columns;
  int64_t rows;
  int64_t count;
};

// Columns of y of one block, a warp for each.
constexpr int kExpertWarps = 4;
// Bytes of a weight of floats that a thread takes at once, where they lie at a multiple of that.
constexpr int kExpertBytes = 16;

// The blocks of one route one after the other: they read the same row of x.
template <class T>
Geometry expert_rows_geometry(const ExpertRoutes<T>& args) {
  return {dim3(static_cast<unsigned>(args.routes * blocks_for(args.rows, kExpertWarps))),
          dim3(kExpertWarps * kWarp)};
}

// What a warp computes: y[route, row], by a row of the weights of all experts, one behind the other.
struct ExpertPlace {
  int64_t route;
  int64_t row;
  int64_t weight;
};

template <class T>
__device__ __forceinline__ ExpertPlace expert_place(const ExpertRoutes<T>& args) {
  const unsigned parts = static_cast<unsigned>(blocks_for(args.rows, kExpertWarps));
  const unsigned route = blockIdx.x / parts;
  const int64_t row = static_cast<int64_t>(blockIdx.x % parts) * kExpertWarps + threadIdx.x / kWarp;
  const int64_t chosen = args.experts[route];
  const int64_t last = args.count - 1;
  const int64_t expert = chosen < 0 ? 0 : (chosen < last ? chosen : last);
  return {route, row, expert * args.rows + row};
}

// Writes the sum of a warp's parts, with the bias of the expert.
template <class T>
__device__ __forceinline__ void expert_deliver(const ExpertRoutes<T>& args, const ExpertPlace& place,
                                               float part) {
  const float sum = warp_sum(part);
  if (threadIdx.x % kWarp != 0) return;
  const float bias = args.bias == nullptr ? 0.0f : real_at(args.bias, args.bias_type, place.weight);
  args.y[place.route * args.rows + place.row] = static_cast<T>(sum + bias);
}

// Floats that a thread takes at once from rows that allow it, and one from others.
template <class T>
bool expert_rows_are_wide(const ExpertRoutes<T>& args, const T* weight) {
  const auto whole = [](uint64_t bytes) { return bytes % kExpertBytes == 0; };
  return whole(reinterpret_cast<uintptr_t>(args.x)) && whole(reinterpret_cast<uintptr_t>(weight)) &&
         whole(static_cast<uint64_t>(args.columns) * sizeof(T));
}

template <class T>
constexpr int kExpertFloats = kExpertBytes / static_cast<int>(sizeof(T));

// `kEach` floats are taken at once: kExpertFloats of rows that are wide, or 1.
template <int kEach, class T>
__global__ void __launch_bounds__(kExpertWarps* kWarp)
    expert_rows_kernel(ExpertRoutes<T> args, const T* weight) {
  const ExpertPlace place = expert_place(args);
  // A warp leaves as a whole.
  if (place.row >= args.rows) return;
  const T* w = weight + place.weight * args.columns;
  const T* x = args.x + place.route * args.columns;
  float part = 0.0f;
  for (int64_t at = static_cast<int64_t>(threadIdx.x % kWarp) * kEach; at < args.columns;
       at += kWarp * kEach) {
    const Together<T, kEach> weights = taken_together<kEach>(w + at), factors = taken_together<kEach>(x + at);
    TOS_UNROLLED
    for (int i = 0; i < kEach; ++i)
      part += static_cast<float>(weights.each[i]) * static_cast<float>(factors.each[i]);
  }
  expert_deliver(args, place, part);
}

template <int kBits, class T>
__global__ void __launch_bounds__(kExpertWarps* kWarp)
    expert_rows_nbits_kernel(ExpertRoutes<T> args, NbitsWeight weight) {
  const ExpertPlace place = expert_place(args);
  if (place.row >= args.rows) return;
  float part[1] = {};
  nbits_times<kBits>(weight, place.weight, args.x, place.route, args.routes, part);
  expert_deliver(args, place, part[0]);
}

}  // namespace tos::cuda
