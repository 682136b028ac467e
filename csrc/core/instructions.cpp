// Which instructions this machine has.
#include "core/instructions.h"

#include <c10/util/Exception.h>
#ifdef TOS_X86
#include <cpuid.h>
#endif

#include <string>
#include <vector>

namespace tos {

namespace {

#ifdef TOS_X86
bool ask_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

// Leaf 1 of cpuid tells; clang before 19 does not know it by name. Asked once: a virtual machine takes
// microseconds to answer.
bool has_f16c() {
  static const bool known = ask_f16c();
  return known;
}
#endif

bool runs(Instructions set) {
#ifdef TOS_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (set == Instructions::kAvx2) return avx2;
  if (set == Instructions::kAvx512) return avx512;
  if (set == Instructions::kAvx512Vnni) return avx512 && __builtin_cpu_supports("avx512vnni");
#endif
  return set == Instructions::kDefault;
}

constexpr const char* kNames[] = {"default", "avx2", "avx512", "avx512 vnni"};
constexpr int kSets = static_cast<int>(Instructions::kCount);
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kSets);

}  // namespace

Instructions instructions_for(int64_t number) {
  static const int widest = [] {
    int set = kSets - 1;
    while (!runs(static_cast<Instructions>(set))) --set;
    return set;
  }();
  if (number == kAnyInstructions) return static_cast<Instructions>(widest);
  TORCH_CHECK_VALUE(number >= 0 && number < kSets, "instructions ", number,
                    " is no number of a set of instructions");
  const auto set = static_cast<Instructions>(number);
  TORCH_CHECK_VALUE(runs(set), "this machine does not have the instructions of set ", number);
  return set;
}

std::vector<std::string> cpu_instructions() {
  std::vector<std::string> names;
  for (int set = 0; set < kSets; ++set) {
    if (runs(static_cast<Instructions>(set))) names.emplace_back(kNames[set]);
  }
  return names;
}

}  // namespace tos
