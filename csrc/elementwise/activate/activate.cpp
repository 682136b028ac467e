// Activations of a sum with a bias, and products with them, in one pass.
#include "elementwise/activate/activate.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "core/reals.h"
#include "elementwise/activate/activate_check.h"

namespace tos {

namespace {

// Elements that are worth a thread.
constexpr int64_t kGrain = 1 << 13;

at::Tensor& activate_out(const at::Tensor& x, const std::optional<at::Tensor>& up,
                         const std::optional<at::Tensor>& bias, int64_t kind, bool halves, double alpha,
                         double beta, double limit, bool rounded, int64_t instructions, at::Tensor& out) {
  const ActivateSizes sizes = check_activate(x, up, bias, kind, halves);
  const ActivateKernel activate_rows = activate_for(instructions);
  TORCH_CHECK_VALUE(out.scalar_type() == x.scalar_type() && out.sizes() == sizes.shape && out.is_contiguous(),
                    "activate: the result does not fit into what is given for it");
  if (out.numel() == 0) return out;
  const ActivateCall call = activate_call(sizes, x, up, bias, kind, halves, alpha, beta, limit, rounded, out);
  const Real type = real_type(x);
  const int64_t grain = std::max<int64_t>(kGrain / sizes.width, 1);
  at::parallel_for(0, sizes.rows, grain,
                   [&](int64_t begin, int64_t end) { activate_rows(type, call.rows, begin, end); });
  return out;
}

at::Tensor activate(const at::Tensor& x, const std::optional<at::Tensor>& up,
                    const std::optional<at::Tensor>& bias, int64_t kind, bool halves, double alpha,
                    double beta, double limit, bool rounded, int64_t instructions) {
  const ActivateSizes sizes = check_activate(x, up, bias, kind, halves);
  at::Tensor out = at::empty(sizes.shape, x.options().memory_format(at::MemoryFormat::Contiguous));
  return activate_out(x, up, bias, kind, halves, alpha, beta, limit, rounded, instructions, out);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("activate", &tos::activate);
  m.impl("activate.out", &tos::activate_out);
}
