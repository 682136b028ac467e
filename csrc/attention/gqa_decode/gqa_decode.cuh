// A step of GroupQueryAttention in three kernels: the new rows as the cache holds them; the rows of the
// cache, split over blocks; the parts together.
#pragma once

#include <cmath>

#include "attention/gqa_decode/gqa_decode_renew.cuh"

namespace tos::cuda {

// Queries of a block, rows of the cache that a warp takes at once, and warps of a block.
constexpr int kGqaQueries = 4;
constexpr int kGqaRows = 4;
constexpr int kGqaWarps = 4;

// By what is known without the lengths, so that a recorded step serves them all.
inline int64_t gqa_parts(const GqaDecode& step) {
  constexpr int64_t kRowsOfPart = 256, kMost = 32;
  const int64_t parts = blocks_for(step.capacity, kRowsOfPart);
  return parts < 1 ? 1 : (parts < kMost ? parts : kMost);
}

inline int64_t gqa_chunks(const GqaDecode& step) {
  return blocks_for(step.heads / step.groups * step.length, kGqaQueries);
}

inline Geometry gqa_attend_geometry(const GqaDecode& step, int64_t parts) {
  return {dim3(static_cast<unsigned>(parts), static_cast<unsigned>(step.groups * gqa_chunks(step)),
               static_cast<unsigned>(step.batch)),
          dim3(kGqaWarps * kWarp)};
}

inline Geometry gqa_combine_geometry(const GqaDecode& step) {
  return {dim3(static_cast<unsigned>(step.batch * step.length), static_cast<unsigned>(step.heads)),
          dim3(2 * kWarp)};
}

// What a warp has seen of the keys: kEach elements of a row are each lane's.
template <int kEach>
struct GqaSeen {
  float row_max[kGqaQueries];
  float sum[kGqaQueries];
  float total[kGqaQueries][kEach];
};

// The queries of a block.
struct GqaQueries {
  const float* rows;  // [kGqaQueries, width], turned and scaled, in shared memory
  int64_t low[kGqaQueries];
  int64_t high[kGqaQueries];  // no greater than low where there is no query
  int64_t bias[kGqaQueries];  // where the bias of position 0 is
};

// Rows of keys and values that follow each other.
struct GqaSpan {
  const void* keys;
  const void* values;
  int64_t key;  // the number that the first row begins with
  int64_t value;
  int64_t key_row;
  int64_t value_row;
  int64_t position;
  int64_t count;
};

// The greater one; kept where it is no number, so that what is made of it is none either.
__device__ __forceinline__ float gqa_greater(float score, float row_max) {
  return !(score <= row_max) ? score : row_max;
}

// exp(score - row_max), where minus infinity stands for what is out of sight.
__device__ __forceinline__ float gqa_weight(float score, float row_max) {
  return score == -HUGE_VALF ? 0.0f : expf(score - row_max);
}

// S is what the cache holds: T, int8_t or GqaNibbles.
template <class T, class S, int kEach>
__device__ __forceinline__ void gqa_see(const GqaDecode& step, const GqaQueries& queries, const GqaSpan& span,
                                        GqaSeen<kEach>& seen) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int64_t base = warp * kGqaRows; base < span.count; base += kGqaWarps * kGqaRows) {
    float score[kGqaRows][kGqaQueries];
    TOS_UNROLLED
    for (int u = 0; u < kGqaRows; ++u) {
      float key[kEach];
      TOS_UNROLLED
      for (int e = 0; e < kEach; ++e) {
        const int64_t d = lane + e * kWarp;
        key[e] = base + u < span.count && d < step.width
                     ? gqa_number<S>(span.keys, span.key + (base + u) * span.key_row + d)
                     : 0.0f;
      }
      TOS_UNROLLED
      for (int i = 0; i < kGqaQueries; ++i) {
        float part = 0.0f;
        TOS_UNROLLED
        for (int e = 0; e < kEach; ++e) {
          const int64_t d = lane + e * kWarp;
          if (d < step.width) part += queries.rows[i * step.width + d] * key[e];
        }
        score[u][i] = part;
      }
    }
    TOS_UNROLLED
    for (int u = 0; u < kGqaRows; ++u) {
      const int64_t position = span.position + base + u;
      TOS_UNROLLED
      for (int i = 0; i < kGqaQueries; ++i) {
        float product = warp_sum(score[u][i]);
        if (step.softcap != 0.0f) product = tanhf(product / step.softcap) * step.softcap;
        const bool sees = base + u < span.count && position >= queries.low[i] && position < queries.high[i];
        if (sees && step.bias != nullptr) {
          product += static_cast<float>(static_cast<const T*>(step.bias)[queries.bias[i] + position]);
        }
        score[u][i] = sees ? product : -HUGE_VALF;
      }
    }
    TOS_UNROLLED
    for (int i = 0; i < kGqaQueries; ++i) {
      float row_max = seen.row_max[i];
      TOS_UNROLLED
      for (int u = 0; u < kGqaRows; ++u) row_max = gqa_greater(score[u][i], row_max);
      const float factor = gqa_weight(seen.row_max[i], row_max);
      seen.row_max[i] = row_max;
      seen.sum[i] *= factor;
      TOS_UNROLLED
      for (int e = 0; e < kEach; ++e) seen.total[i][e] *= factor;
      TOS_UNROLLED
      for (int u = 0; u < kGqaRows; ++u) {
        score[u][i] = gqa_weight(score[u][i], row_max);
        seen.sum[i] += score[u][i];
      }
    }
    TOS_UNROLLED
    for (int u = 0; u < kGqaRows; ++u) {
      TOS_UNROLLED
      for (int e = 0; e < kEach; ++e) {
        const int64_t d = lane + e * kWarp;
        if (base + u >= span.count || d >= step.width) continue;
        const float value = gqa_number<S>(span.values, span.value + (base + u) * span.value_row + d);
        TOS_UNROLLED
        for (int i = 0; i < kGqaQueries; ++i) seen.total[i][e] += score[u][i] * value;
      }
    }
  }
}

template <class T, class S, int kEach>
__global__ void __launch_bounds__(kGqaWarps* kWarp) gqa_attend_kernel(GqaDecode step, GqaParts parts) {
  __shared__ float rows[kGqaQueries * kEach * kWarp];
  __shared__ float totals[kGqaWarps][kGqaQueries * kEach * kWarp];
  __shared__ float row_maxima[kGqaWarps][kGqaQueries], sums[kGqaWarps][kGqaQueries];
  const int64_t chunks = blocks_for(step.heads / step.groups * step.length, kGqaQueries);
  const int64_t part = blockIdx.x, g = blockIdx.y / chunks, chunk = blockIdx.y % chunks, b = blockIdx.z;
  const int64_t each = step.heads / step.groups, width = step.width;
  const GqaPlace place = gqa_place(step, b);
  const int64_t before = place.good ? place.before : 0;
  GqaQueries queries;
  queries.rows = rows;
  TOS_UNROLLED
  for (int i = 0; i < kGqaQueries; ++i) {
    const int64_t q = chunk * kGqaQueries + i, l = q / each, h = g * each + q % each;
    const bool there = l < step.length;
    queries.high[i] = there ? gqa_high(place, l) : 0;
    queries.low[i] = gqa_low(step, place, queries.high[i]);
    queries.bias[i] = there ? b * step.bias_batch + h * step.bias_head + l * step.bias_row : 0;
    const int64_t angle = there ? gqa_turn(step, place, b, l, nullptr) : 0;
    const T* query =
        static_cast<const T*>(step.query) + b * step.query_batch + l * step.query_row + h * width;
    const T* norm = static_cast<const T*>(step.query_norm);
    const bool normed = there && norm != nullptr;
    const GqaRow<T> row{query, norm, normed ? gqa_inverse(query, width, step.query_epsilon) : 1.0f};
    for (int64_t d = threadIdx.x; d < width; d += blockDim.x) {
      const float scale = step.scale * gqa_scale(step.key_scale, step.key_scale_step, width, g, d);
      rows[i * width + d] = there ? gqa_turned(step, row, angle, d) * scale : 0.0f;
    }
  }
  __syncthreads();
  GqaSeen<kEach> seen;
  TOS_UNROLLED
  for (int i = 0; i < kGqaQueries; ++i) {
    seen.row_max[i] = -HUGE_VALF;
    seen.sum[i] = 0.0f;
    TOS_UNROLLED
    for (int e = 0; e < kEach; ++e) seen.total[i][e] = 0.0f;
  }
  // What the first query does not see, no later one does.
  const int64_t low = gqa_low(step, place, before + 1);
  const int64_t first = low < before && place.count > 0 ? low : before;
  const int64_t split = blocks_for(before - first, parts.parts);
  const int64_t from = first + part * split < before ? first + part * split : before;
  const int64_t count = before - from < split ? before - from : split;
  const int64_t row = from - place.first;
  const int64_t key = b * step.past_key_batch + g * step.past_key_head + row * step.past_key_row;
  const int64_t value = b * step.past_value_batch + g * step.past_value_head + row * step.past_value_row;
  const GqaSpan span{step.past_key,     step.past_value,     key,  value,
                     step.past_key_row, step.past_value_row, from, count};
  gqa_see<T, S, kEach>(step, queries, span, seen);
  if (part + 1 == parts.parts) {
    const int64_t fresh = (b * step.groups + g) * step.length * width;
    const GqaSpan own{step.fresh_key, step.fresh_value, fresh, fresh, width, width, before, place.count};
    gqa_see<T, S, kEach>(step, queries, own, seen);
  }
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  TOS_UNROLLED
  for (int i = 0; i < kGqaQueries; ++i) {
    if (lane == 0) {
      row_maxima[warp][i] = seen.row_max[i];
      sums[warp][i] = seen.sum[i];
    }
    TOS_UNROLLED
    for (int e = 0; e < kEach; ++e) totals[warp][(i * kEach + e) * kWarp + lane] = seen.total[i][e];
  }
  __syncthreads();
  for (int i = 0; i < kGqaQueries; ++i) {
    const int64_t q = chunk * kGqaQueries + i, l = q / each, h = g * each + q % each;
    if (l >= step.length) continue;
    float row_max = -HUGE_VALF, sum = 0.0f;
    for (int w = 0; w < kGqaWarps; ++w) row_max = gqa_greater(row_maxima[w][i], row_max);
    for (int w = 0; w < kGqaWarps; ++w) sum += sums[w][i] * gqa_weight(row_maxima[w][i], row_max);
    const int64_t at = ((b * step.length + l) * step.heads + h) * parts.parts + part;
    if (threadIdx.x == 0) {
      parts.row_max[at] = row_max;
      parts.sum[at] = sum;
    }
    for (int64_t d = threadIdx.x; d < width; d += blockDim.x) {
      float total = 0.0f;
      for (int w = 0; w < kGqaWarps; ++w)
        total += totals[w][i * kEach * kWarp + d] * gqa_weight(row_maxima[w][i], row_max);
      parts.total[at * width + d] = total;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(2 * kWarp) gqa_combine_kernel(GqaDecode step, GqaParts parts) {
  const int64_t query = static_cast<int64_t>(blockIdx.x) * step.heads + blockIdx.y,
                first = query * parts.parts;
  const int64_t g = blockIdx.y / (step.heads / step.groups);
  const bool sinks = step.sink != nullptr || step.smooth;
  const float sink =
      step.sink != nullptr ? static_cast<float>(static_cast<const T*>(step.sink)[blockIdx.y]) : 0.0f;
  float row_max = sinks ? sink : -HUGE_VALF;
  for (int64_t p = 0; p < parts.parts; ++p) row_max = gqa_greater(parts.row_max[first + p], row_max);
  float sum = sinks ? expf(sink - row_max) : 0.0f;
  for (int64_t p = 0; p < parts.parts; ++p) {
    sum += parts.sum[first + p] * gqa_weight(parts.row_max[first + p], row_max);
  }
  for (int64_t d = threadIdx.x; d < step.width; d += blockDim.x) {
    float total = 0.0f;
    for (int64_t p = 0; p < parts.parts; ++p) {
      total += parts.total[(first + p) * step.width + d] * gqa_weight(parts.row_max[first + p], row_max);
    }
    // A query without any key in sight gives zeros.
    const float scale = gqa_scale(step.value_scale, step.value_scale_step, step.width, g, d);
    static_cast<T*>(step.y)[query * step.width + d] =
        static_cast<T>(sum == 0.0f ? 0.0f : total / sum * scale);
  }
}

}  // namespace tos::cuda
