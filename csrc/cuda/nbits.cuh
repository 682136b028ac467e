// Weights of 4 or 8 bits in blocks: their numbers, and rows of them times rows of activations.
#pragma once

#include "device.cuh"

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

// Bytes that a thread takes at once: never more than a block of 16 numbers has.
constexpr int kNbitsBytes = 8;

struct alignas(kNbitsBytes) NbitsCodes {
  uint32_t word[2];
};

// The weight at addresses whose types are known only where it is launched.
template <class T, class Addresses>
NbitsWeight<T> nbits_weight_at(const Addresses& from) {
  return {from.codes,  static_cast<const T*>(from.scales),
          from.zeros,  from.packed_zeros,
          from.rows,   from.columns,
          from.blocks, from.block_size};
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

// Adds to `total` what one lane of a warp has of a row of the weight times rows of x, `first` and those
// behind it, of which there are `count`.
template <int kBits, int kRows, class T>
__device__ __forceinline__ void nbits_times(const NbitsWeight<T>& weight, int64_t row, const T* rows,
                                            int64_t first, int64_t count, float (&total)[kRows]) {
  constexpr int kNumbers = kNbitsBytes * 8 / kBits;
  const NbitsCodes* from = nbits_codes<kBits>(weight, row);
  for (int64_t at = threadIdx.x % kWarp; at * kNumbers < weight.columns; at += kWarp) {
    const NbitsCodes codes = from[at];
    const int64_t start = at * kNumbers, block = start / weight.block_size;
    const float scale = static_cast<float>(weight.scales[row * weight.blocks + block]);
    const float zero = nbits_zero<kBits>(weight, row, block);
    TOS_UNROLLED
    for (int m = 0; m < kRows; ++m) {
      // Rows that are not there are the last one again, and go nowhere.
      const int64_t place = first + m < count ? first + m : count - 1;
      const T* x = rows + place * weight.columns + start;
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
}

}  // namespace tos::cuda
