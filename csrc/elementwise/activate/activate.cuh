// Activations of a sum with a bias, and products with them, in one pass; see activations.h.
#pragma once

#include "core/device.cuh"
#include "elementwise/activate/activations.h"

namespace tos::cuda {

constexpr int kActivateThreads = 256;

inline Geometry activate_geometry(const ActivateRows& args) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = blocks_for(args.rows * args.width, kActivateThreads);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kActivateThreads)};
}

__device__ __forceinline__ float activated(Activation kind, float x, float alpha) {
  if (kind == Activation::kGelu) return x * 0.5f * erfcf(x * -0.70710678f);
  // (1 + tanh(u)) / 2 is the sigmoid of 2u.
  const float inner = kind == Activation::kTanhGelu ? 1.59576912f + 0.0713548163f * x * x : alpha;
  return x * (1.0f / (1.0f + expf(-(x * inner))));
}

// Rounded after the addition, as torch adds tensors.
template <class T>
__device__ __forceinline__ float with_bias(const void* x, int64_t at, const void* bias, int64_t i) {
  const float value = static_cast<float>(static_cast<const T*>(x)[at]);
  if (bias == nullptr) return value;
  return static_cast<float>(static_cast<T>(value + static_cast<float>(static_cast<const T*>(bias)[i])));
}

// act(gate + gate_bias) * (up + up_bias + beta), of rows of T.
template <class T>
__global__ void __launch_bounds__(kActivateThreads) activate_kernel(ActivateRows args) {
  const int64_t count = args.rows * args.width, stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) {
    const int64_t row = at / args.width, i = at % args.width;
    float gate = with_bias<T>(args.gate, row * args.gate_stride + i, args.gate_bias, i);
    if (args.limit > 0.0f && gate > args.limit) gate = args.limit;
    float activation = activated(args.kind, gate, args.alpha);
    if (args.up != nullptr) {
      if (args.rounded) activation = static_cast<float>(static_cast<T>(activation));
      float up = with_bias<T>(args.up, row * args.up_stride + i, args.up_bias, i);
      if (args.limit > 0.0f) {
        if (up > args.limit) up = args.limit;
        if (up < -args.limit) up = -args.limit;
      }
      activation *= up + args.beta;
    }
    static_cast<T*>(args.y)[at] = static_cast<T>(activation);
  }
}

}  // namespace tos::cuda
