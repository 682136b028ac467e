#include <torch/library.h>

#include <string>

#include "core/architectures.h"

namespace tos::cuda {

namespace {

std::string cuda_architectures() { return compiled_architectures(); }

}  // namespace

}  // namespace tos::cuda

// There only in a library that holds code for CUDA devices.
TORCH_LIBRARY_FRAGMENT(torch_ort_session, m) {
  m.def("cuda_architectures() -> str", &tos::cuda::cuda_architectures);
}
