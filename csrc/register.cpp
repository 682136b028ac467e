// Every schema of the namespace, once. Implementations live in one file per op and device.
#include <torch/library.h>

#include <cstdint>

#include "tos/abi.h"

namespace tos {

int64_t abi_version() { return kAbiVersion; }

}  // namespace tos

TORCH_LIBRARY(torch_ort_session, m) {
  m.def("abi_version() -> int", &tos::abi_version);
  m.def("check_index(Tensor index, SymInt size, int node, Tensor(a!)? word) -> Tensor");
}
