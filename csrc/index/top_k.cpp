// TopK: where the best entries along an axis lie, in order, the first of equals first.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tos {

namespace {

template <typename Value>
struct Entry {
  Value value;
  int64_t place;
};

// Whether a value belongs before another; what is no number counts as greater than all numbers.
template <typename Value, bool largest>
bool ahead(Value a, Value b) {
  const bool a_none = a != a, b_none = b != b;
  if (a_none || b_none) return largest ? a_none && !b_none : b_none && !a_none;
  return largest ? a > b : a < b;
}

template <typename Value, bool largest>
bool before(const Entry<Value>& a, const Entry<Value>& b) {
  if (ahead<Value, largest>(a.value, b.value)) return true;
  return !ahead<Value, largest>(b.value, a.value) && a.place < b.place;
}

// A heap of the best so far, whose front is the worst of them: most entries are turned away by one
// comparison.
template <typename Value, bool largest>
void select(const Value* from, int64_t size, int64_t step, std::vector<Entry<Value>>& kept, int64_t k) {
  kept.clear();
  int64_t place = 0;
  for (; place < k; ++place) kept.push_back({from[place * step], place});
  std::make_heap(kept.begin(), kept.end(), before<Value, largest>);
  for (; place < size; ++place) {
    const Value value = from[place * step];
    // An equal one comes later, so that it does not belong before.
    if (!ahead<Value, largest>(value, kept.front().value)) continue;
    std::pop_heap(kept.begin(), kept.end(), before<Value, largest>);
    kept.back() = {value, place};
    std::push_heap(kept.begin(), kept.end(), before<Value, largest>);
  }
  std::sort_heap(kept.begin(), kept.end(), before<Value, largest>);
}

template <typename Value, bool largest>
void select_all(const at::Tensor& x, int64_t axis, int64_t k, int64_t* to) {
  // By the sizes: an axis of one entry may have any stride.
  const int64_t size = x.size(axis), inner = c10::multiply_integers(x.sizes().slice(axis + 1));
  const int64_t rows = x.numel() / size, step = inner, outer = size * step;
  const Value* from = x.const_data_ptr<Value>();
  const int64_t grain = std::max<int64_t>(1, 32768 / size);
  at::parallel_for(0, rows, grain, [&](int64_t first, int64_t last) {
    std::vector<Entry<Value>> kept;
    kept.reserve(static_cast<size_t>(k));
    for (int64_t row = first; row < last; ++row) {
      const int64_t block = row / inner, column = row % inner;
      select<Value, largest>(from + block * outer + column, size, step, kept, k);
      int64_t* target = to + block * k * inner + column;
      for (int64_t rank = 0; rank < k; ++rank) target[rank * inner] = kept[static_cast<size_t>(rank)].place;
    }
  });
}

// Gives int64 of the shape of `x` with `k` entries along `axis`.
at::Tensor top_k(const at::Tensor& x, int64_t k, int64_t axis, bool largest) {
  TORCH_CHECK_VALUE(axis >= 0 && axis < x.dim() && k >= 0 && k <= x.size(axis), "top_k: ", k,
                    " entries along axis ", axis, " of ", x.sizes());
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(axis)] = k;
  at::Tensor index = at::empty(sizes, x.options().dtype(at::kLong));
  if (index.numel() == 0) return index;
  const at::Tensor dense = x.contiguous();
  int64_t* to = index.mutable_data_ptr<int64_t>();
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "top_k", [&] {
    if (largest) {
      select_all<scalar_t, true>(dense, axis, k, to);
    } else {
      select_all<scalar_t, false>(dense, axis, k, to);
    }
  });
  return index;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("top_k", &tos::top_k); }
