#pragma once

#include <cstdint>

// Kernels for the CPU are compiled for several sets of instructions, of which a machine runs the widest it
// has.
namespace tos {

#if defined(__x86_64__) && defined(__GNUC__)
#define TOS_X86 1
#endif

// The narrowest first. Other machines than TOS_X86 have the first one alone.
enum class Instructions : int { kDefault, kAvx2, kAvx512, kAvx512Vnni, kCount };

// The set that an op is asked for by number: kAnyInstructions is the widest that runs here. Throws a
// ValueError for one that does not.
constexpr int64_t kAnyInstructions = -1;
Instructions instructions_for(int64_t number);

// Of kernels for three sets those that serve one: where VNNI adds nothing, it is served as AVX-512 is.
#ifdef TOS_X86
#define TOS_SERVING(set, plain, avx2, avx512) \
  ((set) == Instructions::kDefault ? (plain) : (set) == Instructions::kAvx2 ? (avx2) : (avx512))
#else
#define TOS_SERVING(set, plain, avx2, avx512) (static_cast<void>(set), (plain))
#endif

}  // namespace tos
