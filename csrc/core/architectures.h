#pragma once

namespace tos::cuda {

// What the kernels were compiled for, as nvcc writes it: "(800,900)".
const char* compiled_architectures();

}  // namespace tos::cuda
