#include "core/architectures.h"

#define TOS_TEXT_OF(...) #__VA_ARGS__
#define TOS_TEXT(list) TOS_TEXT_OF(list)

namespace tos::cuda {

// nvcc lists what it was told to compile for.
const char* compiled_architectures() { return TOS_TEXT((__CUDA_ARCH_LIST__)); }

}  // namespace tos::cuda
