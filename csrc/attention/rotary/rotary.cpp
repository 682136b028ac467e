// Pairs of features turned by the angles of their token's position, which is checked on the way.
#include "attention/rotary/rotary.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attention/rotary/rotary_check.h"
#include "core/reals.h"
#include "index/check_index/check_index.h"

namespace tos {

namespace {

// Elements that are worth a thread.
constexpr int64_t kGrain = 1 << 14;

// The row of angles of each token; see check_index.cpp.
std::vector<int64_t> rows_of(const at::Tensor& positions, const RotarySizes& sizes, int64_t limit,
                             int64_t node, const std::optional<at::Tensor>& word) {
  std::vector<int64_t> rows(static_cast<size_t>(sizes.tokens()));
  const int64_t* values = positions.const_data_ptr<int64_t>();
  int64_t bad = 0, first = 0;
  for (int64_t i = 0; i < sizes.tokens(); ++i) {
    const int64_t position = position_of(values, i, sizes.length, sizes.counted), before = bad;
    rows[static_cast<size_t>(i)] = Within{0, limit - 1}.safe(position, bad);
    if (bad != 0 && before == 0) first = position;
  }
  if (bad != 0 && word.has_value()) {
    word::note(word->mutable_data_ptr<int32_t>(), word::kIndexOutOfRange, static_cast<int32_t>(node), first,
               0, limit - 1, bad);
  }
  return rows;
}

at::Tensor& rotary_out(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                       const std::optional<at::Tensor>& positions, int64_t heads, bool interleaved,
                       int64_t node, const std::optional<at::Tensor>& word, int64_t instructions,
                       at::Tensor& out) {
  const RotarySizes sizes = check_rotary(x, cos, sin, positions, heads, word);
  const RotateKernel rotate = rotate_for(instructions);
  TORCH_CHECK_VALUE(out.scalar_type() == x.scalar_type() && out.sizes() == x.sizes() && out.is_contiguous(),
                    "rotary: the result does not fit into what is given for it");
  if (x.numel() == 0) return out;
  std::vector<int64_t> angles;
  if (positions.has_value()) angles = rows_of(*positions, sizes, cos.size(0), node, word);
  const RotateRows rows{x.const_data_ptr(),
                        cos.const_data_ptr(),
                        sin.const_data_ptr(),
                        positions.has_value() ? angles.data() : nullptr,
                        out.mutable_data_ptr(),
                        sizes.from,
                        sizes.to,
                        sizes.length,
                        sizes.heads,
                        sizes.size,
                        sizes.width,
                        interleaved};
  const Real type = real_type(x);
  const int64_t grain = std::max<int64_t>(kGrain / (sizes.heads * sizes.size), 1);
  at::parallel_for(0, sizes.tokens(), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(2 * sizes.width));
    rotate(type, rows, begin, end, scratch.data());
  });
  return out;
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const std::optional<at::Tensor>& positions, int64_t heads, bool interleaved, int64_t node,
                  const std::optional<at::Tensor>& word, int64_t instructions) {
  at::Tensor out = at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  return rotary_out(x, cos, sin, positions, heads, interleaved, node, word, instructions, out);
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("rotary", &tos::rotary);
  m.impl("rotary.out", &tos::rotary_out);
}
