// Which kernels for rows of activations this machine runs.
#include "core/rows.h"

namespace tos {

namespace {

const RowKernels& table_for(const WeightKernels& kernels) {
#ifdef TOS_X86
  if (&kernels == &kAvx2Kernels) return kAvx2Rows;
  if (&kernels == &kAvx512Kernels || &kernels == &kAvx512VnniKernels) return kAvx512Rows;
#endif
  return kDefaultRows;
}

}  // namespace

const RowKernels& rows_for(int64_t instructions) { return table_for(kernels_for(instructions)); }

}  // namespace tos
