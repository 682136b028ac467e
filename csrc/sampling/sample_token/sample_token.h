#pragma once

#include <cstdint>

#include "core/portable.h"

// Which token of a row of scores is drawn, in whole numbers, so that every device and every order of sums
// draws the same. A token weighs exp((score - greatest) / temperature) in units of 2^-31.
namespace tos {

constexpr float kWeightUnits = 2147483648.0f;
// Digits of a weight, the highest first.
constexpr int kDigits = 4;
constexpr int kDigitValues = 256;

// Which tokens may be drawn, from the heaviest down: with `top_k` set at most so many, and of the others
// those before which the heavier ones weigh less than a share of all, `closed` no more than it; at least
// `keep`.
struct SampleRules {
  float temperature;
  int64_t top_k;
  double top_p;
  int64_t keep;
  bool closed;
};

// Random numbers by counting: Philox 4x32 of 10 rounds (Salmon, Moraes, Dror and Shaw, Parallel random
// numbers: as easy as 1, 2, 3, 2011).
struct Philox {
  uint32_t word[4];
};

TOS_PORTABLE Philox philox(Philox counter, uint32_t low, uint32_t high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t third = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(third >> 32) ^ counter.word[1] ^ low, static_cast<uint32_t>(third),
                static_cast<uint32_t>(first >> 32) ^ counter.word[3] ^ high, static_cast<uint32_t>(first)}};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// In [0, 1), for a row of one of the draws that a seed has.
TOS_PORTABLE double uniform_of(uint64_t seed, uint64_t draw, uint64_t row) {
  const Philox random = philox({{static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32),
                                 static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)}},
                               static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (uint64_t{random.word[0]} << 21) ^ (random.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

// The lightest weight that may be drawn, and which of the tokens of just that weight: from number `first` on,
// in the order of the vocabulary, `kept` of them.
struct Boundary {
  uint32_t weight;
  uint64_t above;   // rank of the first of that weight
  uint64_t before;  // weight of all that are heavier
  uint64_t first;
  uint64_t kept;

  TOS_PORTABLE uint64_t total() const { return before + kept * weight; }
};

TOS_PORTABLE bool stays(const SampleRules& rules, double bound, uint64_t rank, uint64_t before) {
  if (rules.top_k > 0 && rank >= static_cast<uint64_t>(rules.top_k)) return false;
  const double weight = static_cast<double>(before);
  return rank < static_cast<uint64_t>(rules.keep) || (rules.closed ? weight <= bound : weight < bound);
}

// Goes on by one digit: `count` and `weight` hold, for each value of it, how many tokens that begin as the
// boundary does have it, and what they weigh.
TOS_PORTABLE void next_digit(const SampleRules& rules, double bound, int digit, const uint32_t* count,
                             const unsigned long long* weight, Boundary& at) {
  int value = kDigitValues - 1;
  for (; value > 0 && stays(rules, bound, at.above + count[value], at.before + weight[value]); --value) {
    at.above += count[value];
    at.before += weight[value];
  }
  at.weight |= static_cast<uint32_t>(value) << (8 * (kDigits - 1 - digit));
  if (digit < kDigits - 1) return;
  const uint64_t all = count[value];
  while (at.kept < all && stays(rules, bound, at.above + at.kept, at.before + at.kept * at.weight)) ++at.kept;
  at.first = rules.closed ? 0 : all - at.kept;
}

TOS_PORTABLE bool begins_as(uint32_t weight, const Boundary& at, int digit) {
  return digit == 0 || (weight ^ at.weight) >> (8 * (kDigits - digit)) == 0;
}

TOS_PORTABLE int digit_of(uint32_t weight, int digit) {
  return static_cast<int>(weight >> (8 * (kDigits - 1 - digit)) & 255u);
}

// How much of the tokens of the boundary's weight, of which there were `seen` before, the next one weighs.
TOS_PORTABLE uint32_t drawn_weight(uint32_t weight, const Boundary& at, uint64_t seen) {
  if (weight != at.weight) return weight > at.weight ? weight : 0;
  return seen >= at.first && seen - at.first < at.kept ? weight : 0;
}

// Below `total`, which is above 0.
TOS_PORTABLE uint64_t place_of(double uniform, uint64_t total) {
  const uint64_t place = static_cast<uint64_t>(uniform * static_cast<double>(total));
  return place < total ? place : total - 1;
}

}  // namespace tos
