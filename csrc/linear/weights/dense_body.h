// The kernels of weights.h for weights of floats; see weights_body.h.
#include "core/load_body.h"

namespace {

constexpr int64_t bytes_of(Real type) { return type == Real::kFloat ? 4 : 2; }

// How far ahead of what is read now halves are asked for: the machine itself looks no further than a page.
constexpr int64_t kAhead = 2048;

// Some rows of the weight at once: each is a stream of its own, and what is read of x serves all of them.
template <typename L, Real kType, int kRows>
void dot_some(const char* w, int64_t stride, const float* x, int64_t columns, float* y) {
  constexpr int kSums = 2;
  constexpr int64_t kBytes = bytes_of(kType);
  L total[kRows][kSums];
  TOS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TOS_UNROLL
    for (int i = 0; i < kSums; ++i) total[r][i] = L::all(0.0f);
  }
  int64_t k = 0;
  for (; k + kSums * L::kWidth <= columns; k += kSums * L::kWidth) {
    TOS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kType != Real::kFloat) TOS_PREFETCH(w + (r * stride + k) * kBytes + kAhead);
      TOS_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const int64_t at = k + i * L::kWidth;
        total[r][i] = fused(load_reals<L>(kType, w, r * stride + at), L::load(x + at), total[r][i]);
      }
    }
  }
  for (; k + L::kWidth <= columns; k += L::kWidth) {
    TOS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      total[r][0] = fused(load_reals<L>(kType, w, r * stride + k), L::load(x + k), total[r][0]);
    }
  }
  TOS_UNROLL
  for (int r = 0; r < kRows; ++r) {
    L sums = total[r][0];
    TOS_UNROLL
    for (int i = 1; i < kSums; ++i) sums = sums + total[r][i];
    float sum = sums.sum();
    for (int64_t i = k; i < columns; ++i) sum += real_at(kType, w, r * stride + i) * x[i];
    y[r] = sum;
  }
}

template <Real kType>
void dot_rows(const void* w, int64_t stride, const float* x, int64_t columns, int64_t begin, int64_t end,
              float* y) {
  constexpr int kRows = 4;
  const char* from = static_cast<const char*>(w);
  const int64_t step = stride * bytes_of(kType);
  int64_t n = begin;
  for (; n + kRows <= end; n += kRows)
    dot_some<Wide, kType, kRows>(from + n * step, stride, x, columns, y + n);
  for (; n < end; ++n) dot_some<Wide, kType, 1>(from + n * step, stride, x, columns, y + n);
}

// Some rows of the weight are added to y at once, the next ones of halves asked for on the way.
template <typename L, Real kType, int kRows>
void combine_some(const char* w, int64_t stride, const float* x, int64_t columns, float* y) {
  constexpr int kLanes = kType == Real::kFloat ? 1 : 2;
  constexpr int64_t kBytes = bytes_of(kType);
  L factor[kRows];
  TOS_UNROLL
  for (int r = 0; r < kRows; ++r) factor[r] = L::all(x[r]);
  int64_t n = 0;
  for (; n + kLanes * L::kWidth <= columns; n += kLanes * L::kWidth) {
    L total[kLanes];
    TOS_UNROLL
    for (int i = 0; i < kLanes; ++i) total[i] = L::load(y + n + i * L::kWidth);
    TOS_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kType != Real::kFloat) TOS_PREFETCH(w + ((r + kRows) * stride + n) * kBytes);
      TOS_UNROLL
      for (int i = 0; i < kLanes; ++i) {
        total[i] = fused(load_reals<L>(kType, w, r * stride + n + i * L::kWidth), factor[r], total[i]);
      }
    }
    TOS_UNROLL
    for (int i = 0; i < kLanes; ++i) total[i].store(y + n + i * L::kWidth);
  }
  for (; n < columns; ++n) {
    for (int r = 0; r < kRows; ++r) y[n] += x[r] * real_at(kType, w, r * stride + n);
  }
}

template <Real kType>
void combine_rows(const void* w, int64_t stride, const float* x, int64_t rows, int64_t begin, int64_t end,
                  float* y) {
  constexpr int kRows = 8;
  const int64_t columns = end - begin, step = stride * bytes_of(kType);
  const char* from = static_cast<const char*>(w) + begin * bytes_of(kType);
  y += begin;
  for (int64_t n = 0; n < columns; ++n) y[n] = 0.0f;
  int64_t k = 0;
  for (; k + kRows <= rows; k += kRows) {
    combine_some<Wide, kType, kRows>(from + k * step, stride, x + k, columns, y);
  }
  for (; k < rows; ++k) combine_some<Wide, kType, 1>(from + k * step, stride, x + k, columns, y);
}

void dot(Real type, const void* w, int64_t stride, const float* x, int64_t columns, int64_t begin,
         int64_t end, float* y) {
  constexpr decltype(&dot_rows<Real::kFloat>) kByType[] = {dot_rows<Real::kFloat>, dot_rows<Real::kHalf>,
                                                           dot_rows<Real::kBFloat16>};
  kByType[static_cast<int>(type)](w, stride, x, columns, begin, end, y);
}

void combine(Real type, const void* w, int64_t stride, const float* x, int64_t rows, int64_t begin,
             int64_t end, float* y) {
  constexpr decltype(&combine_rows<Real::kFloat>) kByType[] = {
      combine_rows<Real::kFloat>, combine_rows<Real::kHalf>, combine_rows<Real::kBFloat16>};
  kByType[static_cast<int>(type)](w, stride, x, rows, begin, end, y);
}

}  // namespace
