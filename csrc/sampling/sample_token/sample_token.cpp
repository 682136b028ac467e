// Tokens drawn by their scores, of the heaviest ones.
#include "sampling/sample_token/sample_token.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/reals.h"
#include "sampling/sample_token/sample_token_check.h"

namespace tos {

namespace {

// What tokens weigh; nothing at all where a score is no number, or is infinite.
template <typename T>
void weigh(const T* scores, float temperature, std::vector<uint32_t>& weights) {
  const size_t size = weights.size();
  float score_max = -INFINITY;
  bool all_numbers = true;
  for (size_t i = 0; i < size; ++i) {
    const float score = static_cast<float>(scores[i]);
    score_max = score > score_max ? score : score_max;
    all_numbers &= score == score;
  }
  if (!all_numbers || !std::isfinite(score_max)) {
    std::fill(weights.begin(), weights.end(), 0u);
    return;
  }
  for (size_t i = 0; i < size; ++i) {
    const float share = std::exp((static_cast<float>(scores[i]) - score_max) / temperature);
    weights[i] = static_cast<uint32_t>(share * kWeightUnits);
  }
}

int64_t draw(const std::vector<uint32_t>& weights, const SampleRules& rules, double uniform) {
  uint64_t all = 0;
  for (const uint32_t weight : weights) all += weight;
  if (all == 0) return -1;
  const double bound = rules.top_p * static_cast<double>(all);
  Boundary at{};
  for (int digit = 0; digit < kDigits; ++digit) {
    uint32_t count[kDigitValues] = {};
    unsigned long long weight[kDigitValues] = {};
    for (const uint32_t each : weights) {
      if (!begins_as(each, at, digit)) continue;
      ++count[digit_of(each, digit)];
      weight[digit_of(each, digit)] += each;
    }
    next_digit(rules, bound, digit, count, weight, at);
  }
  const uint64_t place = place_of(uniform, at.total());
  uint64_t sum = 0, seen = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += drawn_weight(weights[i], at, seen);
    seen += weights[i] == at.weight;
    if (sum > place) return static_cast<int64_t>(i);
  }
  return -1;
}

at::Tensor sample_token(const at::Tensor& scores, at::Tensor& state, double temperature, int64_t top_k,
                        double top_p, int64_t keep, bool closed) {
  const SampleRules rules = check_sample(scores, state, temperature, top_k, top_p, keep, closed);
  at::Tensor token = at::empty({scores.size(0)}, scores.options().dtype(at::kLong));
  int64_t* counter = state.mutable_data_ptr<int64_t>();
  const uint64_t seed = static_cast<uint64_t>(counter[0]), turn = static_cast<uint64_t>(counter[1]);
  const at::Tensor dense = scores.contiguous();
  int64_t* to = token.mutable_data_ptr<int64_t>();
  with_reals(dense, [&](const auto* from) {
    at::parallel_for(0, scores.size(0), 1, [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> weights(static_cast<size_t>(scores.size(1)));
      for (int64_t row = begin; row < end; ++row) {
        weigh(from + row * scores.size(1), rules.temperature, weights);
        to[row] = draw(weights, rules, uniform_of(seed, turn, static_cast<uint64_t>(row)));
      }
    });
  });
  if (scores.size(0) != 0) counter[1] = static_cast<int64_t>(turn + 1);
  return token;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("sample_token", &tos::sample_token); }
