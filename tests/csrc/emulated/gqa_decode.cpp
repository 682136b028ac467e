#include "attention/gqa_decode/gqa_decode.cuh"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "entries.h"

namespace {

using tos::GqaDecode;
using tos::cuda::GqaParts;

template <class T>
const char* run(int64_t order, const GqaDecode& step, const GqaParts& parts) {
  return guarded([=] {
    const host_cuda::Order by{order};
    const auto renew = tos::cuda::gqa_renew_geometry(step);
    host_cuda::launch(by, tos::cuda::gqa_renew_kernel<T>, renew.grid, renew.block, renew.shared, step, parts);
    const auto attend = tos::cuda::gqa_attend_geometry(step, parts.parts);
    const auto with = [&](auto kernel) {
      host_cuda::launch(by, kernel, attend.grid, attend.block, attend.shared, step, parts);
    };
    const auto by_width = [&]<class S>(const S*) {
      const int64_t lanes = tos::cuda::blocks_for(step.width, tos::cuda::kWarp);
      if (lanes <= 2) {
        with(tos::cuda::gqa_attend_kernel<T, S, 2>);
      } else if (lanes <= 4) {
        with(tos::cuda::gqa_attend_kernel<T, S, 4>);
      } else {
        with(tos::cuda::gqa_attend_kernel<T, S, 8>);
      }
    };
    if (step.held == tos::GqaHeld::kReals) by_width(static_cast<const T*>(nullptr));
    if (step.held == tos::GqaHeld::kBytes) by_width(static_cast<const int8_t*>(nullptr));
    if (step.held == tos::GqaHeld::kNibbles) by_width(static_cast<const tos::cuda::GqaNibbles*>(nullptr));
    const auto combine = tos::cuda::gqa_combine_geometry(step);
    host_cuda::launch(by, tos::cuda::gqa_combine_kernel<T>, combine.grid, combine.block, combine.shared, step,
                      parts);
  });
}

// Numbers, in the order of `test_emulated_gqa.py`.
enum Number {
  kBatch,
  kLength,
  kHeads,
  kGroups,
  kWidth,
  kCapacity,
  kTotal,
  kAngles,
  kPositions,
  kWindow,
  kInterleaved,
  kSmooth,
  kPacked,
  kBiasLength,
  kParts,
  kNode,
  kRolling,
  kHeld,
  kKeyScaleStep,
  kValueScaleStep
};

}  // namespace

#define ENTRY(name, type)                                                                                    \
  TOS_ENTRY gqa_decode_##name(                                                                               \
      int64_t order, const void* query, const void* key, const void* value, const void* past_key,            \
      const void* past_value, const int32_t* last, const int32_t* counts, const void* cos, const void* sin,  \
      const int64_t* position, const void* bias, const void* sink, const void* query_norm,                   \
      const void* key_norm, const float* key_scale, const float* value_scale, const int64_t* n, float scale, \
      float softcap, float query_epsilon, float key_epsilon, void* y, void* fresh_key, void* fresh_value,    \
      int64_t* places, float* most, float* sum, float* total, int32_t* word) {                               \
    const int64_t width = n[kWidth], own = n[kGroups] * width;                                               \
    const int64_t row = n[kHeads] * width + (n[kPacked] != 0 ? 2 * own : 0);                                 \
    const type* behind = static_cast<const type*>(query) + n[kHeads] * width;                                \
    GqaDecode step{};                                                                                        \
    step.query = query;                                                                                      \
    step.key = n[kPacked] != 0 ? behind : key;                                                               \
    step.value = n[kPacked] != 0 ? behind + own : value;                                                     \
    step.past_key = past_key, step.past_value = past_value, step.last = last, step.counts = counts,          \
    step.cos = cos;                                                                                          \
    step.sin = sin, step.position = position, step.bias = bias, step.sink = sink;                            \
    step.query_norm = query_norm, step.key_norm = key_norm;                                                  \
    step.query_epsilon = query_epsilon, step.key_epsilon = key_epsilon;                                      \
    step.y = y, step.fresh_key = fresh_key, step.fresh_value = fresh_value;                                  \
    step.batch = n[kBatch], step.length = n[kLength], step.heads = n[kHeads], step.groups = n[kGroups];      \
    step.width = width, step.capacity = n[kCapacity], step.total = n[kTotal], step.angles = n[kAngles];      \
    step.positions = n[kPositions], step.window = n[kWindow];                                                \
    step.query_row = row, step.query_batch = row * n[kLength];                                               \
    step.key_row = step.value_row = n[kPacked] != 0 ? row : own;                                             \
    step.key_batch = step.value_batch = step.key_row * n[kLength];                                           \
    step.past_key_row = step.past_value_row = width;                                                         \
    step.past_key_head = step.past_value_head = width * n[kCapacity];                                        \
    step.past_key_batch = step.past_value_batch = own * n[kCapacity];                                        \
    step.bias_row = n[kBiasLength], step.bias_head = n[kBiasLength] * n[kLength];                            \
    step.scale = scale, step.softcap = softcap;                                                              \
    step.held = static_cast<tos::GqaHeld>(n[kHeld]);                                                         \
    step.key_scale = key_scale, step.value_scale = value_scale;                                              \
    step.key_scale_step = n[kKeyScaleStep], step.value_scale_step = n[kValueScaleStep];                      \
    step.rolling = n[kRolling] != 0;                                                                         \
    step.interleaved = n[kInterleaved] != 0, step.smooth = n[kSmooth] != 0;                                  \
    const GqaParts parts{places, most, sum, total, n[kParts], static_cast<int32_t>(n[kNode]), word};         \
    return run<type>(order, step, parts);                                                                    \
  }

ENTRY(float32, float)
ENTRY(float16, c10::Half)
ENTRY(bfloat16, c10::BFloat16)
