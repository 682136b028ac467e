#pragma once

#include <cstdint>

// The validation word: how a kernel tells what was wrong with its data. `runtime/validation/word.py` reads
// it.
namespace tos::word {

// Places of its int32 elements. Values of 64 bits take two, the low half first. kDone counts the runs that
// wrote their results before; kLow and kHigh are the least and the greatest value that would have been valid.
enum Place : int { kFlags, kNode, kValue, kCount = 4, kHigh, kDone = 7, kLow, kSize = 10 };

// What was wrong; `word.py` has a sentence for each. The word keeps the flag of the first fault.
enum Flag : int32_t {
  kIndexOutOfRange = 1,
  kDivisionByZero = 2,
  kLengthOutOfRange = 4,
  kClassOutOfRange = 8,
  kPositionOutOfRange = 16,
  kDistributionEmpty = 32,
  kProbabilityOutOfRange = 64,
};

inline void put(int32_t* word, Place place, int64_t value) {
  word[place] = static_cast<int32_t>(static_cast<uint64_t>(value));
  word[place + 1] = static_cast<int32_t>(static_cast<uint64_t>(value) >> 32);
}

// Notes a fault of one thread, whose value should have been in [low, high]. The first one stays until the
// word is cleared; later ones are only counted.
inline void note(int32_t* word, Flag flag, int32_t node, int64_t value, int64_t low, int64_t high,
                 int64_t count) {
  if (word[kFlags] == 0) {
    word[kFlags] = flag;
    word[kNode] = node;
    put(word, kValue, value);
    put(word, kLow, low);
    put(word, kHigh, high);
  }
  const int64_t total = word[kCount] + count;
  word[kCount] = total < INT32_MAX ? static_cast<int32_t>(total) : INT32_MAX;
}

}  // namespace tos::word
