// The kernels of weights.h for weights of floats; see weights_body.h.
#include "tos/load_body.h"

namespace {

template <typename L>
float dot_row(Real type, const void* w, int64_t from, const float* x, int64_t columns) {
  constexpr int kSums = 4;
  L total[kSums];
  TOS_UNROLL
  for (int i = 0; i < kSums; ++i) total[i] = L::all(0.0f);
  int64_t k = 0;
  for (; k + kSums * L::kWidth <= columns; k += kSums * L::kWidth) {
    TOS_UNROLL
    for (int i = 0; i < kSums; ++i) {
      total[i] =
          fused(load_reals<L>(type, w, from + k + i * L::kWidth), L::load(x + k + i * L::kWidth), total[i]);
    }
  }
  for (; k + L::kWidth <= columns; k += L::kWidth) {
    total[0] = fused(load_reals<L>(type, w, from + k), L::load(x + k), total[0]);
  }
  float sum = ((total[0] + total[1]) + (total[2] + total[3])).sum();
  for (; k < columns; ++k) sum += real_at(type, w, from + k) * x[k];
  return sum;
}

template <Real kType>
void dot_rows(const void* w, int64_t stride, const float* x, int64_t columns, int64_t begin, int64_t end,
              float* y) {
  for (int64_t n = begin; n < end; ++n) y[n] = dot_row<Wide>(kType, w, n * stride, x, columns);
}

// A tile of y stays in the nearest cache while some rows of the weight pass it.
constexpr int64_t kTile = 2048;
constexpr int kRowsOfTile = 8;

template <typename L, Real kType, int kRows>
void combine_rows(const void* w, int64_t stride, const float* x, int64_t begin, int64_t end, float* y) {
  L factor[kRows];
  TOS_UNROLL
  for (int r = 0; r < kRows; ++r) factor[r] = L::all(x[r]);
  int64_t n = begin;
  for (; n + L::kWidth <= end; n += L::kWidth) {
    L total = L::load(y + n);
    TOS_UNROLL
    for (int r = 0; r < kRows; ++r) total = fused(load_reals<L>(kType, w, r * stride + n), factor[r], total);
    total.store(y + n);
  }
  for (; n < end; ++n) {
    for (int r = 0; r < kRows; ++r) y[n] += x[r] * real_at(kType, w, r * stride + n);
  }
}

template <Real kType>
void combine_all(const void* w, int64_t stride, const float* x, int64_t rows, int64_t begin, int64_t end,
                 float* y) {
  constexpr int64_t kBytes = kType == Real::kFloat ? 4 : 2;
  for (int64_t from = begin; from < end; from += kTile) {
    const int64_t to = from + kTile < end ? from + kTile : end;
    for (int64_t n = from; n < to; ++n) y[n] = 0.0f;
    const char* row = static_cast<const char*>(w);
    int64_t k = 0;
    for (; k + kRowsOfTile <= rows; k += kRowsOfTile) {
      combine_rows<Wide, kType, kRowsOfTile>(row + k * stride * kBytes, stride, x + k, from, to, y);
    }
    for (; k < rows; ++k) combine_rows<Wide, kType, 1>(row + k * stride * kBytes, stride, x + k, from, to, y);
  }
}

void dot(Real type, const void* w, int64_t stride, const float* x, int64_t columns, int64_t begin,
         int64_t end, float* y) {
  constexpr decltype(&dot_rows<Real::kFloat>) kByType[] = {dot_rows<Real::kFloat>, dot_rows<Real::kHalf>,
                                                           dot_rows<Real::kBFloat16>};
  kByType[static_cast<int>(type)](w, stride, x, columns, begin, end, y);
}

void combine(Real type, const void* w, int64_t stride, const float* x, int64_t rows, int64_t begin,
             int64_t end, float* y) {
  constexpr decltype(&combine_all<Real::kFloat>) kByType[] = {
      combine_all<Real::kFloat>, combine_all<Real::kHalf>, combine_all<Real::kBFloat16>};
  kByType[static_cast<int>(type)](w, stride, x, rows, begin, end, y);
}

}  // namespace
