// Weights of 2, 4 or 8 bits in blocks: their numbers, and rows of them times rows of activations.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "core/device.cuh"
#include "linear/weights/nbits_weight.h"

namespace tos::cuda {

// Words that a thread takes at once: never more than a block of 16 numbers has.
template <int kBits>
constexpr int kNbitsWords = kBits == 2 ? 1 : 2;
template <int kBits>
constexpr int kNbitsNumbers = kNbitsWords<kBits> * 32 / kBits;

// Bytes of activations, or of floats that are written, at once, where they lie at a multiple of that.
constexpr int kNbitsBytes = 16;
template <class T>
constexpr int kNbitsFloats = kNbitsBytes / static_cast<int>(sizeof(T));

// One of the floats of a type that is known only when the kernel runs: alike in all threads, and asked for
// rarely.
__device__ __forceinline__ float real_at(const void* from, Real type, int64_t i) {
  if (type == Real::kFloat) return static_cast<const float*>(from)[i];
  if (type == Real::kHalf) return static_cast<float>(static_cast<const c10::Half*>(from)[i]);
  return static_cast<float>(static_cast<const c10::BFloat16*>(from)[i]);
}

template <int kBits>
__device__ __forceinline__ float nbits_zero(const NbitsWeight& weight, int64_t row, int block) {
  if (weight.zeros == nullptr) return 1 << (kBits - 1);
  if (!weight.packed_zeros) return real_at(weight.zeros, weight.zero_type, row * weight.blocks + block);
  constexpr int kEach = 8 / kBits;
  const int row_bytes = (weight.blocks + kEach - 1) / kEach;
  const int byte = static_cast<const uint8_t*>(weight.zeros)[row * row_bytes + block / kEach];
  return static_cast<float>((byte >> (block % kEach * kBits)) & ((1 << kBits) - 1));
}

// The numbers of a row that a thread takes at once, less their zero, and their scale.
template <int kBits>
struct NbitsPiece {
  float number[kNbitsNumbers<kBits>];
  float scale;
};

// Piece `at` of a row; all of it lies in one block.
template <int kBits>
__device__ __forceinline__ NbitsPiece<kBits> nbits_piece(const NbitsWeight& weight, int64_t row, int at) {
  constexpr int kWords = kNbitsWords<kBits>, kEach = 32 / kBits;
  const int64_t row_bytes = (static_cast<int64_t>(weight.blocks) << weight.block_shift) * kBits / 8;
  const uint32_t* codes = reinterpret_cast<const uint32_t*>(weight.codes + row * row_bytes);
  const Together<uint32_t, kWords> packed = taken_together<kWords>(codes + at * kWords);
  const int block = (at * kNbitsNumbers<kBits>) >> weight.block_shift;
  const float zero = nbits_zero<kBits>(weight, row, block);
  NbitsPiece<kBits> piece;
  piece.scale = real_at(weight.scales, weight.scale_type, row * weight.blocks + block);
  TOS_UNROLLED
  for (int i = 0; i < kNbitsNumbers<kBits>; ++i) {
    const uint32_t number = (packed.each[i / kEach] >> (i % kEach * kBits)) & ((1u << kBits) - 1);
    piece.number[i] = static_cast<float>(number) - zero;
  }
  // A scale that is not finite counts for each number, and not for what is left of their sum.
  if (piece.scale - piece.scale != 0.0f) {
    TOS_UNROLLED
    for (int i = 0; i < kNbitsNumbers<kBits>; ++i) piece.number[i] *= piece.scale;
    piece.scale = 1.0f;
  }
  return piece;
}

// Whether rows of floats can be taken kNbitsBytes at once.
template <class T>
__device__ __forceinline__ bool nbits_are_wide(const T* rows, int columns) {
  return reinterpret_cast<uintptr_t>(rows) % kNbitsBytes == 0 && columns % kNbitsFloats<T> == 0;
}

// Adds to `total` what one lane of a warp has of a row of the weight times rows of x, `first` and those
// behind it, of which there are `count`.
template <int kBits, int kRows, class T>
__device__ __forceinline__ void nbits_times(const NbitsWeight& weight, int64_t row, const T* rows,
                                            int64_t first, int64_t count, float (&total)[kRows]) {
  constexpr int kNumbers = kNbitsNumbers<kBits>, kFloats = kNbitsFloats<T>;
  const bool wide = nbits_are_wide(rows, weight.columns);
  const T* x[kRows];
  TOS_UNROLLED
  for (int m = 0; m < kRows; ++m) {
    // Rows that are not there are the last one again, and go nowhere.
    x[m] = rows + (first + m < count ? first + m : count - 1) * weight.columns;
  }
  const int pieces = (weight.columns + kNumbers - 1) / kNumbers;
  for (int at = static_cast<int>(threadIdx.x % kWarp); at < pieces; at += kWarp) {
    const NbitsPiece<kBits> piece = nbits_piece<kBits>(weight, row, at);
    const int start = at * kNumbers;
    const bool whole = wide && start + kNumbers <= weight.columns;
    TOS_UNROLLED
    for (int m = 0; m < kRows; ++m) {
      float part = 0.0f;
      if (whole) {
        TOS_UNROLLED
        for (int i = 0; i < kNumbers; i += kFloats) {
          const Together<T, kFloats> factors = taken_together<kFloats>(x[m] + start + i);
          TOS_UNROLLED
          for (int j = 0; j < kFloats; ++j) part += piece.number[i + j] * static_cast<float>(factors.each[j]);
        }
      } else {
        TOS_UNROLLED
        for (int i = 0; i < kNumbers; ++i) {
          if (start + i < weight.columns) part += piece.number[i] * static_cast<float>(x[m][start + i]);
        }
      }
      total[m] += part * piece.scale;
    }
  }
}

}  // namespace tos::cuda
