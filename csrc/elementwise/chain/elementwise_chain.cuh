// Chains of elementwise steps in one pass; see chain.h.
#pragma once

#include "core/device.cuh"
#include "elementwise/chain/chain.h"

// Of an argument that is read by numbers which are not known when it is compiled, without a copy.
#ifdef __CUDACC__
#define TOS_IN_PLACE __grid_constant__
#else
#define TOS_IN_PLACE
#endif

namespace tos::cuda {

// Elements that a thread takes through the rows together.
constexpr int kChainEach = 4;
constexpr int kChainThreads = 128;
constexpr int kChainSharedBytes = 48 * 1024;  // what a block is given without asking for more

// The numbers of places are of a type that holds them all.
template <class Index>
struct ElementwiseChain {
  ChainProgram program;
  ChainSlots slots;
  ChainInput<Index> inputs[kChainInputs];
  void* out;
  Index count;
};

// Registers lie in shared memory, each thread's own numbers side by side.
template <class Index>
Geometry chain_geometry(const ElementwiseChain<Index>& args) {
  constexpr int64_t kMostBlocks = 1 << 16, kNumbers = kChainEach * sizeof(float);
  const int64_t bytes = args.slots.count * kNumbers;
  const int64_t threads = bytes * kChainThreads > kChainSharedBytes ? kChainThreads / 2 : kChainThreads;
  const int64_t blocks = blocks_for(static_cast<int64_t>(args.count), threads * kChainEach);
  return {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
          dim3(static_cast<unsigned>(threads)), static_cast<size_t>(bytes * threads)};
}

using ChainNumbers = Together<float, kChainEach>;

__device__ __forceinline__ float chain_within(float x, float low, float high) {
  const float above = low > x ? low : x;
  return high < above ? high : above;
}

// A row is rounded before another one reads it, so only what lies within a code could become one rounding.
template <class T, ChainCode kCode>
__device__ __forceinline__ float chain_of(float x, float y, float z) {
  if constexpr (kCode == ChainCode::kAdd) return x + y;
  if constexpr (kCode == ChainCode::kSub) return x - y;
  if constexpr (kCode == ChainCode::kMul) return x * y;
  if constexpr (kCode == ChainCode::kDiv) return x / y;
  if constexpr (kCode == ChainCode::kMin) return x == x ? (x < y ? x : y) : x;
  if constexpr (kCode == ChainCode::kMax) return x == x ? (x > y ? x : y) : x;
  if constexpr (kCode == ChainCode::kPow) return powf(x, y);
  if constexpr (kCode == ChainCode::kNeg) return -x;
  if constexpr (kCode == ChainCode::kAbs) return fabsf(x);
  if constexpr (kCode == ChainCode::kReciprocal) return 1.0f / x;
  if constexpr (kCode == ChainCode::kSqrt) return sqrtf(x);
  if constexpr (kCode == ChainCode::kExp) return expf(x);
  if constexpr (kCode == ChainCode::kLog) return logf(x);
  if constexpr (kCode == ChainCode::kErf) return erff(x);
  if constexpr (kCode == ChainCode::kTanh) return tanhf(x);
  if constexpr (kCode == ChainCode::kSigmoid) return 1.0f / (1.0f + expf(-x));
  if constexpr (kCode == ChainCode::kRelu) return 0.0f > x ? 0.0f : x;
  if constexpr (kCode == ChainCode::kFloor) return floorf(x);
  if constexpr (kCode == ChainCode::kCeil) return ceilf(x);
  if constexpr (kCode == ChainCode::kRound) return rintf(x);
  if constexpr (kCode == ChainCode::kSin) return sinf(x);
  if constexpr (kCode == ChainCode::kCos) return cosf(x);
  if constexpr (kCode == ChainCode::kSquare) return x * x;
  // As torch has a third power here, both products are rounded.
  if constexpr (kCode == ChainCode::kCube) return static_cast<float>(static_cast<T>(x * x)) * x;
  if constexpr (kCode == ChainCode::kSoftplus) return x > 40.0f ? x : log1pf(expf(x));
  if constexpr (kCode == ChainCode::kSoftsign) return x / (fabsf(x) + 1.0f);
  if constexpr (kCode == ChainCode::kMish) {
    // tanh(log(1 + e)) of e = exp(x); above 20 that is 1.
    const float e = expf(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
  }
  if constexpr (kCode == ChainCode::kClip) {
    if (x != x) return x;
    return y != y ? y : z != z ? z : chain_within(x, y, z);
  }
  if constexpr (kCode == ChainCode::kLeakyRelu) return x > 0.0f ? x : x * y;
  if constexpr (kCode == ChainCode::kElu) return x >= 0.0f ? x : expm1f(x) * y;
  if constexpr (kCode == ChainCode::kHardSigmoid) {
    return chain_within(__fadd_rn(__fmul_rn(x, y), z), 0.0f, 1.0f);
  }
  if constexpr (kCode == ChainCode::kHardSwish) return x * chain_within(x + 3.0f, 0.0f, 6.0f) / 6.0f;
  if constexpr (kCode == ChainCode::kGeluErf) return x * 0.5f * (1.0f + erff(x * 0.70710678f));
  // (1 + tanh(u)) / 2 is the sigmoid of 2u.
  if constexpr (kCode == ChainCode::kGeluTanh) {
    return x * (1.0f / (1.0f + expf(-(x * (1.59576912f + 0.0713548163f * x * x)))));
  }
  if constexpr (kCode == ChainCode::kSilu) return x / (1.0f + expf(-x));
}

template <class T, ChainCode kCode>
__device__ __forceinline__ ChainNumbers chain_all(const ChainNumbers& x, const ChainNumbers& y,
                                                  const ChainNumbers& z) {
  ChainNumbers numbers;
  TOS_UNROLLED
  for (int i = 0; i < kChainEach; ++i) numbers.each[i] = chain_of<T, kCode>(x.each[i], y.each[i], z.each[i]);
  return numbers;
}

template <class T>
__device__ __forceinline__ ChainNumbers chain_row(ChainCode code, const ChainNumbers& x,
                                                  const ChainNumbers& y, const ChainNumbers& z) {
  switch (code) {
#define TOS_CHAIN_CASE(name) \
  case ChainCode::name:      \
    return chain_all<T, ChainCode::name>(x, y, z);
    TOS_CHAIN_CASE(kAdd)
    TOS_CHAIN_CASE(kSub)
    TOS_CHAIN_CASE(kMul)
    TOS_CHAIN_CASE(kDiv)
    TOS_CHAIN_CASE(kMin)
    TOS_CHAIN_CASE(kMax)
    TOS_CHAIN_CASE(kPow)
    TOS_CHAIN_CASE(kNeg)
    TOS_CHAIN_CASE(kAbs)
    TOS_CHAIN_CASE(kReciprocal)
    TOS_CHAIN_CASE(kSqrt)
    TOS_CHAIN_CASE(kExp)
    TOS_CHAIN_CASE(kLog)
    TOS_CHAIN_CASE(kErf)
    TOS_CHAIN_CASE(kTanh)
    TOS_CHAIN_CASE(kSigmoid)
    TOS_CHAIN_CASE(kRelu)
    TOS_CHAIN_CASE(kFloor)
    TOS_CHAIN_CASE(kCeil)
    TOS_CHAIN_CASE(kRound)
    TOS_CHAIN_CASE(kSin)
    TOS_CHAIN_CASE(kCos)
    TOS_CHAIN_CASE(kSquare)
    TOS_CHAIN_CASE(kCube)
    TOS_CHAIN_CASE(kSoftplus)
    TOS_CHAIN_CASE(kSoftsign)
    TOS_CHAIN_CASE(kMish)
    TOS_CHAIN_CASE(kClip)
    TOS_CHAIN_CASE(kLeakyRelu)
    TOS_CHAIN_CASE(kElu)
    TOS_CHAIN_CASE(kHardSigmoid)
    TOS_CHAIN_CASE(kHardSwish)
    TOS_CHAIN_CASE(kGeluErf)
    TOS_CHAIN_CASE(kGeluTanh)
    TOS_CHAIN_CASE(kSilu)
#undef TOS_CHAIN_CASE
    case ChainCode::kCount:
      break;
  }
  return x;
}

__device__ __forceinline__ ChainNumbers chain_spread(float value) {
  ChainNumbers numbers;
  TOS_UNROLLED
  for (int i = 0; i < kChainEach; ++i) numbers.each[i] = value;
  return numbers;
}

// Elements of an input from number `at` on; those behind the last one of the result are zero.
template <class T, class Index>
__device__ __forceinline__ ChainNumbers chain_taken(const ChainInput<Index>& input, Index at, Index count) {
  const T* data = static_cast<const T*>(input.data);
  ChainNumbers numbers;
  if (at + kChainEach <= count && input.flat() &&
      reinterpret_cast<uintptr_t>(data) % sizeof(Together<T, kChainEach>) == 0) {
    const Together<T, kChainEach> all = taken_together<kChainEach>(data + at);
    TOS_UNROLLED
    for (int i = 0; i < kChainEach; ++i) numbers.each[i] = static_cast<float>(all.each[i]);
    return numbers;
  }
  // Elements of one row of an input lie at one distance.
  const bool together = input.dims == 1 || input.size[0] % kChainEach == 0;
  Index place = input.place(at);
  TOS_UNROLLED
  for (int i = 0; i < kChainEach; ++i) {
    const bool there = at + i < count;
    if (!together && there) place = input.place(at + i);
    numbers.each[i] = there ? static_cast<float>(data[place]) : 0.0f;
    if (together) place += input.stride[0];
  }
  return numbers;
}

template <class T, class Index>
__device__ __forceinline__ void chain_kept(T* out, Index at, Index count, const ChainNumbers& numbers) {
  if (at + kChainEach <= count && reinterpret_cast<uintptr_t>(out) % sizeof(Together<T, kChainEach>) == 0) {
    Together<T, kChainEach> all;
    TOS_UNROLLED
    for (int i = 0; i < kChainEach; ++i) all.each[i] = static_cast<T>(numbers.each[i]);
    *reinterpret_cast<Together<T, kChainEach>*>(out + at) = all;
    return;
  }
  TOS_UNROLLED
  for (int i = 0; i < kChainEach; ++i) {
    if (at + i < count) out[at + i] = static_cast<T>(numbers.each[i]);
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(kChainThreads)
    chain_kernel(const TOS_IN_PLACE ElementwiseChain<Index> args) {
  ChainNumbers* mine = dynamic_shared<ChainNumbers>() + threadIdx.x;
  const ChainProgram& program = args.program;
  const int first = program.inputs + program.constants;
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x * kChainEach;
  for (Index at = (static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x) * kChainEach; at < args.count;
       at += step) {
    for (int i = 0; i < program.inputs; ++i) {
      mine[args.slots.of[i] * blockDim.x] = chain_taken<T>(args.inputs[i], at, args.count);
    }
    const auto read = [&](int number) {
      if (number < 0) return chain_spread(0.0f);
      if (number >= program.inputs && number < first)
        return chain_spread(program.constant[number - program.inputs]);
      return mine[args.slots.of[number] * blockDim.x];
    };
    ChainNumbers numbers;
    for (int row = 0; row < program.rows; ++row) {
      const ChainRow each = program.row[row];
      const ChainCode code = static_cast<ChainCode>(each.code);
      const ChainNumbers x = read(each.operands[0]);
      ChainNumbers y = read(each.operands[1]), z = read(each.operands[2]);
      if (code == ChainCode::kClip) {
        // A bound that is absent does not bind.
        if (each.operands[1] < 0) y = chain_spread(-INFINITY);
        if (each.operands[2] < 0) z = chain_spread(INFINITY);
      }
      numbers = chain_row<T>(code, x, y, z);
      TOS_UNROLLED
      for (int i = 0; i < kChainEach; ++i)
        numbers.each[i] = static_cast<float>(static_cast<T>(numbers.each[i]));
      mine[args.slots.of[first + row] * blockDim.x] = numbers;
    }
    chain_kept(static_cast<T*>(args.out), at, args.count, numbers);
  }
}

}  // namespace tos::cuda
