// New rows of a step of GroupQueryAttention, normalized and turned, and the kernel that gives them as the
// cache holds them.
#pragma once

#include <cmath>

#include "attention/gqa_decode/gqa_decode.h"
#include "core/device.cuh"
#include "core/reduce.cuh"
#include "core/word.cuh"

namespace tos::cuda {

// What the kernels write for one another, and what they tell.
struct GqaParts {
  int64_t* places;  // [batch, gqa_places]
  float* row_max;   // [batch, length, heads, parts]
  float* sum;       // [batch, length, heads, parts]
  float* total;     // [batch, length, heads, parts, width]
  int64_t parts;
  int32_t node;
  int32_t* word;  // or nullptr
};

inline Geometry gqa_renew_geometry(const GqaDecode& step) {
  return {dim3(static_cast<unsigned>(step.batch * step.length), static_cast<unsigned>(step.groups)),
          dim3(2 * kWarp)};
}

// The row of cosines and sines of a new row; one that is not there is clamped, and noted by whoever says so.
__device__ __forceinline__ int64_t gqa_turn(const GqaDecode& step, const GqaPlace& place, int64_t b,
                                            int64_t l, const GqaParts* tell) {
  if (step.angles == 0) return 0;
  int64_t bad = 0;
  const int64_t wanted = gqa_angle(step, place, b, l);
  const int64_t safe = Within{0, step.positions - 1}.safe(wanted, bad);
  if (bad != 0 && l < place.count && tell != nullptr && tell->word != nullptr) {
    note_from_thread(tell->word, word::kIndexOutOfRange, tell->node, wanted, 0, step.positions - 1, 1);
  }
  return safe;
}

// A row that is multiplied by `inverse` and by weights, unless there are none.
template <class T>
struct GqaRow {
  const T* row;
  const T* weight;  // or nullptr
  float inverse;

  __device__ __forceinline__ float at(int64_t d) const {
    const float own = static_cast<float>(row[d]);
    return weight == nullptr ? own : own * (inverse * static_cast<float>(weight[d]));
  }
};

// One by the root mean square of a row, by all lanes of a warp.
template <class T>
__device__ __forceinline__ float gqa_inverse(const T* row, int64_t width, float epsilon) {
  float squares = 0.0f;
  for (int64_t d = threadIdx.x % kWarp; d < width; d += kWarp) {
    const float own = static_cast<float>(row[d]);
    squares += own * own;
  }
  return 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + epsilon);
}

// Element d of a row, turned.
template <class T>
__device__ __forceinline__ float gqa_turned(const GqaDecode& step, const GqaRow<T>& row, int64_t angle,
                                            int64_t d) {
  const int64_t half = step.angles;
  if (d >= 2 * half) return row.at(d);
  const int64_t i = step.interleaved ? d / 2 : (d < half ? d : d - half);
  const bool first = step.interleaved ? d % 2 == 0 : d < half;
  const int64_t other = step.interleaved ? d ^ 1 : (first ? d + half : d - half);
  const float cos = static_cast<float>(static_cast<const T*>(step.cos)[angle * half + i]);
  const float sin = static_cast<float>(static_cast<const T*>(step.sin)[angle * half + i]);
  const float own = row.at(d) * cos, across = row.at(other) * sin;
  return first ? own - across : own + across;
}

// Two numbers of 4 bits in a byte.
struct GqaNibbles {
  uint8_t both;
};

// A number of a cache.
template <class S>
__device__ __forceinline__ float gqa_number(const void* from, int64_t at) {
  return static_cast<float>(static_cast<const S*>(from)[at]);
}

template <>
__device__ __forceinline__ float gqa_number<GqaNibbles>(const void* from, int64_t at) {
  const int both = static_cast<const GqaNibbles*>(from)[at / 2].both;
  return static_cast<float>((at % 2 == 0 ? both & 15 : both >> 4) - 8);
}

// Puts elements of a row into a new row of a cache, of whole numbers where it holds those. `value` gives an
// element as a float of type T has it.
template <class T, class Value>
__device__ __forceinline__ void gqa_put(const GqaDecode& step, const float* scale, int64_t scale_step,
                                        int64_t g, void* to, int64_t at, const Value& value) {
  const auto number = [&](int64_t d) {
    return gqa_stored(static_cast<float>(value(d)), gqa_scale(scale, scale_step, step.width, g, d),
                      step.held);
  };
  if (step.held == GqaHeld::kReals) {
    for (int64_t d = threadIdx.x; d < step.width; d += blockDim.x) static_cast<T*>(to)[at + d] = value(d);
  } else if (step.held == GqaHeld::kBytes) {
    for (int64_t d = threadIdx.x; d < step.width; d += blockDim.x) {
      static_cast<int8_t*>(to)[at + d] = static_cast<int8_t>(number(d));
    }
  } else {
    for (int64_t d = threadIdx.x; d < step.width / 2; d += blockDim.x) {
      const int both = (number(2 * d) + 8) | ((number(2 * d + 1) + 8) << 4);
      static_cast<uint8_t*>(to)[at / 2 + d] = static_cast<uint8_t>(both);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(2 * kWarp) gqa_renew_kernel(GqaDecode step, GqaParts parts) {
  const int64_t b = blockIdx.x / step.length, l = blockIdx.x % step.length, g = blockIdx.y;
  const GqaPlace place = gqa_place(step, b);
  const bool tells = threadIdx.x == 0 && g == 0;
  if (tells && l == 0) {
    gqa_tell(step, place, parts.places + b * gqa_places(step));
    if (!place.good && parts.word != nullptr) {
      const GqaFault fault = gqa_fault(step, b);
      note_from_thread(parts.word, fault.flag, parts.node, fault.value, fault.low, fault.high, 1);
    }
  }
  const int64_t angle = gqa_turn(step, place, b, l, tells ? &parts : nullptr);
  const T* key = static_cast<const T*>(step.key) + b * step.key_batch + l * step.key_row + g * step.width;
  const T* value =
      static_cast<const T*>(step.value) + b * step.value_batch + l * step.value_row + g * step.width;
  const int64_t to = ((b * step.groups + g) * step.length + l) * step.width;
  // Each warp on its own: they wait for nobody.
  const T* norm = static_cast<const T*>(step.key_norm);
  const float inverse = norm == nullptr ? 1.0f : gqa_inverse(key, step.width, step.key_epsilon);
  const GqaRow<T> row{key, norm, inverse};
  gqa_put<T>(step, step.key_scale, step.key_scale_step, g, step.fresh_key, to,
             [&](int64_t d) { return static_cast<T>(gqa_turned(step, row, angle, d)); });
  gqa_put<T>(step, step.value_scale, step.value_scale_step, g, step.fresh_value, to,
             [&](int64_t d) { return value[d]; });
}

}  // namespace tos::cuda
