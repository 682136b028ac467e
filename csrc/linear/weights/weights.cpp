// Which instructions this machine has, and the kernels that use them.
#include "linear/weights/weights.h"

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

const WeightKernels* table_of(Instructions set) {
#ifdef TOS_X86
  if (set == Instructions::kAvx2) return &kAvx2Kernels;
  if (set == Instructions::kAvx512) return &kAvx512Kernels;
  if (set == Instructions::kAvx512Vnni) return &kAvx512VnniKernels;
#endif
  return set == Instructions::kDefault ? &kDefaultKernels : nullptr;
}

}  // namespace

const WeightKernels* kernels_of(Instructions set) { return runs(set) ? table_of(set) : nullptr; }

const WeightKernels& kernels_for(int64_t instructions) {
  static const int best = [] {
    int set = static_cast<int>(Instructions::kCount) - 1;
    while (kernels_of(static_cast<Instructions>(set)) == nullptr) --set;
    return set;
  }();
  const int64_t set = instructions == kAnyInstructions ? best : instructions;
  TORCH_CHECK_VALUE(set >= 0 && set < static_cast<int>(Instructions::kCount), "instructions ", instructions,
                    " is no number of a set of instructions");
  const WeightKernels* kernels = kernels_of(static_cast<Instructions>(set));
  TORCH_CHECK_VALUE(kernels != nullptr, "this machine does not have the instructions of set ", instructions);
  return *kernels;
}

std::vector<std::string> cpu_instructions() {
  std::vector<std::string> names;
  for (int set = 0; set < static_cast<int>(Instructions::kCount); ++set) {
    const WeightKernels* kernels = kernels_of(static_cast<Instructions>(set));
    if (kernels != nullptr) names.emplace_back(kernels->name);
  }
  return names;
}

}  // namespace tos
