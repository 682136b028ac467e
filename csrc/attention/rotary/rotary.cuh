// Pairs of features turned by the angles of their token's position, which is checked on the way.
#pragma once

#include "attention/rotary/head_strides.h"
#include "core/device.cuh"
#include "core/word.cuh"
#include "index/check_index/check_index.h"

namespace tos::cuda {

constexpr int kRotaryThreads = 256;

// Heads of `size` features, of which the first 2 * half are turned. `positions` may be nullptr: then the
// angles of a token lie at its own number. See rotary.h.
template <class T>
struct Rotary {
  const T* x;
  const T* cos;  // [limit, half]
  const T* sin;
  const int64_t* positions;
  T* y;
  HeadStrides from;
  HeadStrides to;
  int64_t tokens;
  int64_t length;
  int64_t heads;
  int64_t size;
  int64_t half;
  int64_t limit;
  bool counted;
  bool interleaved;
};

// A thread has a pair to turn or a feature to copy.
template <class T>
Geometry rotary_geometry(const Rotary<T>& args) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = blocks_for(args.tokens * args.heads * (args.size - args.half), kRotaryThreads);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kRotaryThreads)};
}

template <class T>
__device__ __forceinline__ int64_t angles_of(const Rotary<T>& args, int64_t token, int64_t& bad) {
  if (args.positions == nullptr) return token;
  const int64_t position = position_of(args.positions, token, args.length, args.counted);
  return Within{0, args.limit - 1}.safe(position, bad);
}

// The first bad position of all is told, by the first block. `word` may be nullptr.
template <class T>
__global__ void __launch_bounds__(kRotaryThreads) rotary_kernel(Rotary<T> args, int32_t node, int32_t* word) {
  const int64_t each = args.size - args.half, count = args.tokens * args.heads * each;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t ignored = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const int64_t feature = i % each, head = i / each % args.heads, token = i / each / args.heads;
    const T* from = args.x + args.from.place(token, head, args.length);
    T* to = args.y + args.to.place(token, head, args.length);
    if (feature >= args.half) {
      to[feature + args.half] = from[feature + args.half];
      continue;
    }
    const int64_t angle = angles_of(args, token, ignored) * args.half + feature;
    const float cos = static_cast<float>(args.cos[angle]), sin = static_cast<float>(args.sin[angle]);
    const int64_t first = args.interleaved ? 2 * feature : feature;
    const int64_t second = args.interleaved ? first + 1 : first + args.half;
    const float real = static_cast<float>(from[first]), imaginary = static_cast<float>(from[second]);
    to[first] = static_cast<T>(real * cos - imaginary * sin);
    to[second] = static_cast<T>(real * sin + imaginary * cos);
  }
  if (blockIdx.x != 0 || word == nullptr || args.positions == nullptr) return;
  __shared__ FirstBad shared;
  int64_t bad = 0, first = args.tokens;
  for (int64_t token = threadIdx.x; token < args.tokens; token += blockDim.x) {
    const int64_t before = bad;
    angles_of(args, token, bad);
    if (bad != before && first == args.tokens) first = token;
  }
  if (!found_in_block(bad, first, shared)) return;
  if (threadIdx.x == 0) {
    const int64_t value =
        position_of(args.positions, static_cast<int64_t>(shared.place), args.length, args.counted);
    note_from_thread(word, word::kIndexOutOfRange, node, value, 0, args.limit - 1, shared.count);
  }
}

}  // namespace tos::cuda
