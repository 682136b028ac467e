// A step of GroupQueryAttention: a few new queries of each sample over its cache and its new rows.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "attention/gqa_decode/gqa_decode_check.h"
#include "attention/gqa_decode/gqa_decode_rows.h"
#include "core/reals.h"
#include "core/word.h"

namespace tos {

namespace {

// Parts that the rows of a sample are split into, whatever their number and that of threads.
constexpr int64_t kRowsOfPart = 512;
constexpr int64_t kMostParts = 8;
constexpr int64_t kTasksWanted = 16;

template <typename T>
float at(const void* from, int64_t place) {
  return static_cast<float>(static_cast<const T*>(from)[place]);
}

// How a row of a head is normalized; `weight` may be nullptr, for not at all.
struct Norm {
  const void* weight;
  float epsilon;
};

// One row of a head, normalized and rotated, in floats.
template <typename T>
void rotated(const GqaDecode& step, const T* from, const Norm& norm, int64_t angle, float factor, float* to) {
  const int64_t half = step.angles;
  for (int64_t d = 0; d < step.width; ++d) to[d] = static_cast<float>(from[d]);
  if (norm.weight != nullptr) {
    float squares = 0.0f;
    for (int64_t d = 0; d < step.width; ++d) squares += to[d] * to[d];
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(step.width) + norm.epsilon);
    for (int64_t d = 0; d < step.width; ++d) to[d] *= inverse * at<T>(norm.weight, d);
  }
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = step.interleaved ? 2 * i : i, second = step.interleaved ? 2 * i + 1 : i + half;
    const float cos = at<T>(step.cos, angle * half + i), sin = at<T>(step.sin, angle * half + i);
    const float a = to[first], b = to[second];
    to[first] = a * cos - b * sin;
    to[second] = a * sin + b * cos;
  }
  for (int64_t d = 0; d < step.width; ++d) to[d] *= factor;
}

Held held_of(const GqaDecode& step, Real type) {
  if (step.held == GqaHeld::kBytes) return Held::kBytes;
  if (step.held == GqaHeld::kNibbles) return Held::kNibbles;
  return type == Real::kFloat ? Held::kFloat : type == Real::kHalf ? Held::kHalf : Held::kBFloat16;
}

// What a task keeps: for each of its queries the greatest score, the sum and the weighted values.
struct Partial {
  std::vector<float> row_max, sum, total;
};

template <typename T>
class Decoder {
 public:
  Decoder(const GqaDecode& step, Real type, AttendRows attend)
      : step_(step),
        type_(type),
        held_(held_of(step, type)),
        bits_(step.held == GqaHeld::kReals   ? 8 * sizeof(T)
              : step.held == GqaHeld::kBytes ? 8
                                             : 4),
        attend_(attend),
        each_(step.heads / step.groups),
        queries_(each_ * step.length) {
    const int64_t pairs = step.batch * step.groups;
    const int64_t wanted = std::min((kTasksWanted + pairs - 1) / pairs, kMostParts);
    parts_ = std::clamp<int64_t>(step.capacity / kRowsOfPart, 1, std::max<int64_t>(wanted, 1));
    angles_.resize(static_cast<size_t>(step.batch * step.length));
    places_.reserve(static_cast<size_t>(step.batch));
  }

  // Says where each sample begins and which angles turn its rows; notes what cannot be.
  void place(int64_t* row_places, int32_t node, int32_t* word) {
    for (int64_t b = 0; b < step_.batch; ++b) {
      const GqaPlace place = gqa_place(step_, b);
      gqa_tell(step_, place, row_places + b * gqa_places(step_));
      places_.push_back(place);
      if (!place.good && word != nullptr) {
        const GqaFault fault = gqa_fault(step_, b);
        word::note(word, fault.flag, node, fault.value, fault.low, fault.high, 1);
      }
      // Rows that do not count have no place, and are turned by any angle.
      for (int64_t l = 0; l < place.count && step_.angles != 0; ++l) {
        int64_t bad = 0;
        const int64_t wanted = gqa_angle(step_, place, b, l);
        angles_[static_cast<size_t>(b * step_.length + l)] = Within{0, step_.positions - 1}.safe(wanted, bad);
        if (bad != 0 && word != nullptr) {
          word::note(word, word::kIndexOutOfRange, node, wanted, 0, step_.positions - 1, 1);
        }
      }
    }
  }

  // New rows as the cache holds them.
  void renew() {
    const int64_t width = step_.width;
    std::vector<float> row(static_cast<size_t>(width));
    for (int64_t b = 0; b < step_.batch; ++b) {
      for (int64_t g = 0; g < step_.groups; ++g) {
        for (int64_t l = 0; l < step_.length; ++l) {
          const int64_t to = ((b * step_.groups + g) * step_.length + l) * width;
          const int64_t key = b * step_.key_batch + l * step_.key_row + g * width;
          rotated(step_, static_cast<const T*>(step_.key) + key, {step_.key_norm, step_.key_epsilon},
                  angle(b, l), 1.0f, row.data());
          store(row.data(), step_.key_scale, step_.key_scale_step, g, step_.fresh_key, to);
          const int64_t value = b * step_.value_batch + l * step_.value_row + g * width;
          const T* from = static_cast<const T*>(step_.value) + value;
          if (step_.held == GqaHeld::kReals) {
            std::copy(from, from + width, static_cast<T*>(step_.fresh_value) + to);
            continue;
          }
          for (int64_t d = 0; d < width; ++d) row[d] = static_cast<float>(from[d]);
          store(row.data(), step_.value_scale, step_.value_scale_step, g, step_.fresh_value, to);
        }
      }
    }
  }

  void run() {
    const int64_t pairs = step_.batch * step_.groups, tasks = pairs * parts_;
    std::vector<Partial> partials(static_cast<size_t>(tasks));
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        partials[static_cast<size_t>(task)] = attend(task / parts_, task % parts_);
      }
    });
    for (int64_t pair = 0; pair < pairs; ++pair) finish(pair, partials.data() + pair * parts_);
  }

 private:
  // The address of a number of what is held as the caches are.
  const char* held(const void* from, int64_t number) const {
    return static_cast<const char*>(from) + number * bits_ / 8;
  }

  // A row of a group as the caches hold it.
  void store(const float* row, const float* scale, int64_t scale_step, int64_t g, void* to,
             int64_t at) const {
    const int64_t width = step_.width;
    const auto number = [&](int64_t d) {
      const float rounded = static_cast<float>(static_cast<T>(row[d]));
      return gqa_stored(rounded, gqa_scale(scale, scale_step, width, g, d), step_.held);
    };
    if (step_.held == GqaHeld::kReals) {
      for (int64_t d = 0; d < width; ++d) static_cast<T*>(to)[at + d] = static_cast<T>(row[d]);
    } else if (step_.held == GqaHeld::kBytes) {
      for (int64_t d = 0; d < width; ++d) static_cast<int8_t*>(to)[at + d] = static_cast<int8_t>(number(d));
    } else {
      uint8_t* bytes = static_cast<uint8_t*>(to) + at / 2;
      for (int64_t d = 0; d < width; d += 2) {
        bytes[d / 2] = static_cast<uint8_t>((number(d) + 8) | ((number(d + 1) + 8) << 4));
      }
    }
  }
  int64_t angle(int64_t b, int64_t l) const { return angles_[static_cast<size_t>(b * step_.length + l)]; }

  Partial attend(int64_t pair, int64_t part) const {
    const int64_t b = pair / step_.groups, g = pair % step_.groups, width = step_.width;
    const GqaPlace& place = places_[static_cast<size_t>(b)];
    const int64_t before = std::max<int64_t>(place.before, 0);
    const size_t count = static_cast<size_t>(queries_), wide = count * static_cast<size_t>(width);
    Partial partial{std::vector<float>(count, -HUGE_VALF), std::vector<float>(count),
                    std::vector<float>(wide)};
    std::vector<float> rows(wide), scores(count * kRowsOfCache);
    std::vector<int64_t> low(count), high(count);
    std::vector<const void*> bias(count);
    for (int64_t l = 0; l < step_.length; ++l) {
      for (int64_t i = 0; i < each_; ++i) {
        const int64_t h = g * each_ + i;
        const size_t q = static_cast<size_t>(l * each_ + i);
        const int64_t from = b * step_.query_batch + l * step_.query_row + h * width;
        rotated(step_, static_cast<const T*>(step_.query) + from, {step_.query_norm, step_.query_epsilon},
                angle(b, l), step_.scale, rows.data() + q * width);
        if (step_.key_scale != nullptr) {
          float* row = rows.data() + q * width;
          for (int64_t d = 0; d < width; ++d) {
            row[d] *= gqa_scale(step_.key_scale, step_.key_scale_step, width, g, d);
          }
        }
        high[q] = gqa_high(place, l);
        low[q] = gqa_low(step_, place, high[q]);
        if (step_.bias != nullptr) {
          bias[q] = static_cast<const T*>(step_.bias) + b * step_.bias_batch + h * step_.bias_head +
                    l * step_.bias_row;
        }
      }
    }
    const CacheQueries queries{queries_,
                               rows.data(),
                               low.data(),
                               high.data(),
                               step_.bias == nullptr ? nullptr : bias.data(),
                               step_.softcap,
                               scores.data(),
                               partial.row_max.data(),
                               partial.sum.data(),
                               partial.total.data()};
    // What the first query does not see, no later one does.
    const int64_t seen = place.count > 0 ? std::max<int64_t>(before - low[0], 0) : 0;
    const int64_t each = (seen + parts_ - 1) / parts_;
    const int64_t from = std::min(low[0] + part * each, before), to = std::min(from + each, before);
    if (to > from) {
      const int64_t row = from - place.first;
      const int64_t key = b * step_.past_key_batch + g * step_.past_key_head + row * step_.past_key_row;
      const int64_t value =
          b * step_.past_value_batch + g * step_.past_value_head + row * step_.past_value_row;
      attend_({held_, type_, held(step_.past_key, key), held(step_.past_value, value), step_.past_key_row,
               step_.past_value_row, width, from, to - from},
              queries);
    }
    if (part + 1 == parts_ && place.count > 0) {
      const int64_t at = pair * step_.length * width;
      attend_({held_, type_, held(step_.fresh_key, at), held(step_.fresh_value, at), width, width, width,
               before, place.count},
              queries);
    }
    return partial;
  }

  // The parts together, with the sink.
  void finish(int64_t pair, const Partial* parts) const {
    const int64_t b = pair / step_.groups, g = pair % step_.groups, width = step_.width;
    std::vector<float> total(static_cast<size_t>(width));
    for (int64_t q = 0; q < queries_; ++q) {
      const int64_t l = q / each_, h = g * each_ + q % each_;
      const bool sinks = step_.sink != nullptr || step_.smooth;
      const float sink = step_.sink != nullptr ? at<T>(step_.sink, h) : 0.0f;
      float row_max = sinks ? sink : -HUGE_VALF, sum = 0.0f;
      const size_t query = static_cast<size_t>(q);
      for (int64_t p = 0; p < parts_; ++p) {
        if (!(parts[p].row_max[query] <= row_max)) row_max = parts[p].row_max[query];
      }
      if (sinks) sum = std::exp(sink - row_max);
      std::fill(total.begin(), total.end(), 0.0f);
      for (int64_t p = 0; p < parts_; ++p) {
        if (parts[p].row_max[query] == -HUGE_VALF) continue;
        const float factor = std::exp(parts[p].row_max[query] - row_max);
        sum += parts[p].sum[query] * factor;
        const float* from = parts[p].total.data() + q * width;
        for (int64_t d = 0; d < width; ++d) total[static_cast<size_t>(d)] += from[d] * factor;
      }
      T* to = static_cast<T*>(step_.y) + ((b * step_.length + l) * step_.heads + h) * width;
      // A query without any key in sight gives zeros.
      for (int64_t d = 0; d < width; ++d) {
        const float scale = gqa_scale(step_.value_scale, step_.value_scale_step, width, g, d);
        to[d] = static_cast<T>(sum == 0.0f ? 0.0f : total[static_cast<size_t>(d)] / sum * scale);
      }
    }
  }

  const GqaDecode& step_;
  Real type_;
  Held held_;
  int64_t bits_;  // of a number of the caches
  AttendRows attend_;
  int64_t each_;
  int64_t queries_;
  int64_t parts_ = 1;
  std::vector<int64_t> angles_;
  std::vector<GqaPlace> places_;
};

GqaResult gqa_decode(const at::Tensor& query, const std::optional<at::Tensor>& key,
                     const std::optional<at::Tensor>& value, const at::Tensor& past_key,
                     const at::Tensor& past_value, const at::Tensor& last, int64_t total,
                     const std::optional<at::Tensor>& cos, const std::optional<at::Tensor>& sin,
                     const std::optional<at::Tensor>& position, const std::optional<at::Tensor>& bias,
                     const std::optional<at::Tensor>& sink, int64_t heads, int64_t groups, double scale,
                     int64_t window, double softcap, bool interleaved, bool smooth, int64_t node,
                     const std::optional<at::Tensor>& word, int64_t instructions,
                     const std::optional<at::Tensor>& query_norm, const std::optional<at::Tensor>& key_norm,
                     double query_epsilon, double key_epsilon, const std::optional<at::Tensor>& counts,
                     bool rolling, const std::optional<at::Tensor>& key_scale,
                     const std::optional<at::Tensor>& value_scale) {
  const GqaInputs inputs{query,         key,         value,    past_key,    past_value, last,       total,
                         cos,           sin,         position, bias,        sink,       heads,      groups,
                         scale,         window,      softcap,  interleaved, smooth,     query_norm, key_norm,
                         query_epsilon, key_epsilon, counts,   rolling,     key_scale,  value_scale};
  int32_t* noted = gqa_word(word, query);
  GqaResult result;
  const GqaDecode step = gqa_step(inputs, result);
  if (step.batch == 0) return result;
  const AttendRows attend = attend_rows_for(instructions);
  int64_t* row_places = std::get<3>(result).mutable_data_ptr<int64_t>();
  with_reals(query, [&](const auto* typed) {
    using Kind = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    Decoder<Kind> decoder(step, real_type(query), attend);
    decoder.place(row_places, static_cast<int32_t>(node), noted);
    decoder.renew();
    decoder.run();
  });
  return result;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("gqa_decode", &tos::gqa_decode); }
