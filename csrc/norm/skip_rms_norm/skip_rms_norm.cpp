// (x + skip + bias), and it divided by the root of its mean square and scaled, row by row.
#include "norm/skip_rms_norm/skip_rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/reals.h"
#include "norm/skip_rms_norm/skip_rms_norm_check.h"

namespace tos {

namespace {

// Elements that are worth a thread.
constexpr int64_t kGrain = 1 << 15;

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Placed = std::tuple<at::Tensor&, at::Tensor&, at::Tensor&>;

Placed skip_rms_norm_out(const at::Tensor& x, const std::optional<at::Tensor>& skip,
                         const std::optional<at::Tensor>& bias, const at::Tensor& gamma, double epsilon,
                         bool wants_total, bool wants_inverse, int64_t instructions, at::Tensor& y,
                         at::Tensor& total, at::Tensor& inverse) {
  const NormSizes sizes = check_norm(x, skip, bias, gamma, wants_total, wants_inverse);
  const NormKernel normalize = norm_for(instructions);
  TORCH_CHECK_VALUE(fits(y, x.sizes(), x.scalar_type()) && fits(total, sizes.total, x.scalar_type()) &&
                        fits(inverse, sizes.inverse, at::kFloat),
                    "skip_rms_norm: the results do not fit into what is given for them");
  if (x.numel() == 0) {
    clear_inverse(inverse);
    return {y, total, inverse};
  }
  const auto address = [](const std::optional<at::Tensor>& part) {
    return part.has_value() ? part->const_data_ptr() : nullptr;
  };
  const NormRows rows{x.const_data_ptr(),
                      address(skip),
                      address(bias),
                      gamma.const_data_ptr(),
                      y.mutable_data_ptr(),
                      wants_total ? total.mutable_data_ptr() : nullptr,
                      wants_inverse ? inverse.mutable_data_ptr<float>() : nullptr,
                      x.size(-1),
                      static_cast<float>(epsilon)};
  const Real type = real_type(x);
  const int64_t grain = std::max<int64_t>(kGrain / rows.width, 1);
  at::parallel_for(0, x.numel() / rows.width, grain,
                   [&](int64_t begin, int64_t end) { normalize(type, rows, begin, end); });
  return {y, total, inverse};
}

Three skip_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& skip,
                    const std::optional<at::Tensor>& bias, const at::Tensor& gamma, double epsilon,
                    bool wants_total, bool wants_inverse, int64_t instructions) {
  const NormSizes sizes = check_norm(x, skip, bias, gamma, wants_total, wants_inverse);
  at::Tensor y = at::empty(x.sizes(), x.options()), total = at::empty(sizes.total, x.options());
  at::Tensor inverse = at::empty(sizes.inverse, x.options().dtype(at::kFloat));
  skip_rms_norm_out(x, skip, bias, gamma, epsilon, wants_total, wants_inverse, instructions, y, total,
                    inverse);
  return {y, total, inverse};
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("skip_rms_norm", &tos::skip_rms_norm);
  m.impl("skip_rms_norm.out", &tos::skip_rms_norm_out);
}
