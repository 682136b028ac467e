// The kernels of steps.h. Included once by each file of kernels, behind its lanes, which `Wide` names.
// Everything is local to that file.
namespace {

// Loops over this many numbers have a length that the compiler knows, and become vectors.
constexpr int kBlock = 16;

uint32_t bits_of(float real) {
  uint32_t bits;
  std::memcpy(&bits, &real, sizeof(bits));
  return bits;
}

// To about one unit in the last place; infinite from 88.4 on, and what is no number stays none.
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // Adding it leaves the nearest integer in the lowest bits.
  constexpr float kRounder = 12582912.0f;
  const float moved = x * 1.44269504f + kRounder;
  const float count = moved - kRounder;
  // ln 2 in two parts, of which the first is exact in a few bits.
  const float remainder = (x - count * 0.693359375f) + count * 2.12194440e-4f;
  float sum = 1.0f / 5040;
  sum = sum * remainder + 1.0f / 720;
  sum = sum * remainder + 1.0f / 120;
  sum = sum * remainder + 1.0f / 24;
  sum = sum * remainder + 1.0f / 6;
  sum = sum * remainder + 0.5f;
  sum = sum * remainder + 1.0f;
  sum = sum * remainder + 1.0f;
  const uint32_t exponent = bits_of(moved) - bits_of(kRounder) + 127u;
  return sum * real_of(exponent << 23);
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// Around zero by its odd series' best approximation, since a difference of ones would lose what is small.
inline float hyperbolic(float x) {
  const float z = x * x;
  float sum = -5.70498872745e-3f;
  sum = sum * z + 2.06390887954e-2f;
  sum = sum * z - 5.37397155531e-2f;
  sum = sum * z + 1.33314422036e-1f;
  sum = sum * z - 3.33332819422e-1f;
  const float near = x + x * z * sum;
  const float far = 1.0f - 2.0f / (1.0f + exponential(2.0f * x));
  return ((x < 0.625f) & (x > -0.625f)) ? near : far;
}

inline float bounded(float x, float clip) {
  x = x < -clip ? -clip : x;
  return x > clip ? clip : x;
}

// The blocks of a row: whole ones where they lie, the rest through copies.
template <int kIn, int kOut, typename Body>
void by_blocks(int64_t count, const float* const (&from)[kIn], float* const (&to)[kOut], const Body& body) {
  float in[kIn][kBlock] = {}, out[kOut][kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t left = count - at;
    const size_t bytes = sizeof(float) * static_cast<size_t>(left < kBlock ? left : kBlock);
    for (int k = 0; k < kIn; ++k) {
      if (left >= kBlock) {
        std::memcpy(in[k], from[k] + at, sizeof(in[k]));
      } else {
        std::memcpy(in[k], from[k] + at, bytes);
      }
    }
    for (int i = 0; i < kBlock; ++i) body(in, out, i);
    for (int k = 0; k < kOut; ++k) {
      if (left >= kBlock) {
        std::memcpy(to[k] + at, out[k], sizeof(out[k]));
      } else {
        std::memcpy(to[k] + at, out[k], bytes);
      }
    }
  }
}

void lstm_step(const StepRow& row) {
  const int64_t h = row.hidden;
  const float *a = row.input, *p = row.product;
  const float* const from[] = {a, a + h, a + 2 * h, a + 3 * h, p, p + h, p + 2 * h, p + 3 * h, row.cell};
  float* const to[] = {row.state, row.cell, row.output};
  const float clip = row.clip;
  by_blocks(h, from, to, [clip](const auto& in, auto& out, int i) {
    const float enter = sigmoid(bounded(in[0][i] + in[4][i], clip));
    const float leave = sigmoid(bounded(in[1][i] + in[5][i], clip));
    const float keep = sigmoid(bounded(in[2][i] + in[6][i], clip));
    const float cell = keep * in[8][i] + enter * hyperbolic(bounded(in[3][i] + in[7][i], clip));
    out[0][i] = out[2][i] = leave * hyperbolic(cell);
    out[1][i] = cell;
  });
}

void gru_linear_step(const StepRow& row, const float* bias) {
  const int64_t h = row.hidden;
  const float *a = row.input, *p = row.product;
  const float* const from[] = {a, a + h, a + 2 * h, p, p + h, p + 2 * h, row.state, bias};
  float* const to[] = {row.state, row.output};
  const float clip = row.clip;
  by_blocks(h, from, to, [clip](const auto& in, auto& out, int i) {
    const float update = sigmoid(bounded(in[0][i] + in[3][i], clip));
    const float reset = sigmoid(bounded(in[1][i] + in[4][i], clip));
    const float fresh = hyperbolic(bounded(in[2][i] + reset * (in[5][i] + in[7][i]), clip));
    out[0][i] = out[1][i] = fresh + update * (in[6][i] - fresh);
  });
}

void gru_reset_step(const StepRow& row, float* reset_state) {
  const int64_t h = row.hidden;
  const float* const from[] = {row.input + h, row.product + h, row.state};
  float* const to[] = {reset_state};
  const float clip = row.clip;
  by_blocks(h, from, to, [clip](const auto& in, auto& out, int i) {
    out[0][i] = sigmoid(bounded(in[0][i] + in[1][i], clip)) * in[2][i];
  });
}

void gru_step(const StepRow& row, const float* product) {
  const int64_t h = row.hidden;
  const float* const from[] = {row.input, row.product, row.input + 2 * h, product, row.state};
  float* const to[] = {row.state, row.output};
  const float clip = row.clip;
  by_blocks(h, from, to, [clip](const auto& in, auto& out, int i) {
    const float update = sigmoid(bounded(in[0][i] + in[1][i], clip));
    const float fresh = hyperbolic(bounded(in[2][i] + in[3][i], clip));
    out[0][i] = out[1][i] = fresh + update * (in[4][i] - fresh);
  });
}

// A tile of sums: some rows of r times some rows of x, each loaded once.
template <int kRows, int kBatch>
void tile(const float* r, int64_t columns, const float* x, float* y, int64_t y_stride) {
  Wide total[kRows][kBatch];
  for (int n = 0; n < kRows; ++n) {
    for (int b = 0; b < kBatch; ++b) total[n][b] = Wide::all(0.0f);
  }
  int64_t k = 0;
  for (; k + Wide::kWidth <= columns; k += Wide::kWidth) {
    Wide of_x[kBatch];
    TOS_UNROLL
    for (int b = 0; b < kBatch; ++b) of_x[b] = Wide::load(x + b * columns + k);
    TOS_UNROLL
    for (int n = 0; n < kRows; ++n) {
      const Wide of_r = Wide::load(r + n * columns + k);
      TOS_UNROLL
      for (int b = 0; b < kBatch; ++b) total[n][b] = of_r.times_plus(of_x[b], total[n][b]);
    }
  }
  for (int n = 0; n < kRows; ++n) {
    for (int b = 0; b < kBatch; ++b) {
      float sum = total[n][b].sum();
      for (int64_t tail = k; tail < columns; ++tail) sum += r[n * columns + tail] * x[b * columns + tail];
      y[b * y_stride + n] = sum;
    }
  }
}

template <int kBatch>
void product_of(const float* r, int64_t rows, int64_t columns, const float* x, float* y) {
  constexpr int kRows = kBatch == 1 ? 8 : 4;
  int64_t n = 0;
  for (; n + kRows <= rows; n += kRows) tile<kRows, kBatch>(r + n * columns, columns, x, y + n, rows);
  for (; n < rows; ++n) tile<1, kBatch>(r + n * columns, columns, x, y + n, rows);
}

void step_product(const float* r, int64_t rows, int64_t columns, const float* x, int64_t batch, float* y) {
  for (; batch >= 4; batch -= 4, x += 4 * columns, y += 4 * rows) product_of<4>(r, rows, columns, x, y);
  if (batch == 3) product_of<3>(r, rows, columns, x, y);
  if (batch == 2) product_of<2>(r, rows, columns, x, y);
  if (batch == 1) product_of<1>(r, rows, columns, x, y);
}

// Rows of r side by side: as many as a tile sums at once, which its registers have to hold.
constexpr int kVectors = Wide::kWidth == 16 ? 4 : 2;
constexpr int kPanel = kVectors * Wide::kWidth;

// In squares that stay in the nearest cache on both sides; rows behind the last are zeros.
void step_pack(const float* r, int64_t rows, int64_t columns, float* packed) {
  constexpr int64_t kSide = 16;
  for (int64_t first = 0; first < rows; first += kPanel, packed += kPanel * columns) {
    for (int64_t from = 0; from < columns; from += kSide) {
      const int64_t to = from + kSide < columns ? from + kSide : columns;
      for (int64_t n = 0; n < kPanel; ++n) {
        const bool present = first + n < rows;
        const float* row = r + (first + n) * columns;
        for (int64_t k = from; k < to; ++k) packed[k * kPanel + n] = present ? row[k] : 0.0f;
      }
    }
  }
}

template <int kBatch>
void panel_tile(const float* panel, int64_t columns, const float* x, float* y, int64_t y_stride,
                int64_t count) {
  Wide total[kBatch][kVectors];
  TOS_UNROLL
  for (int b = 0; b < kBatch; ++b) {
    TOS_UNROLL
    for (int v = 0; v < kVectors; ++v) total[b][v] = Wide::all(0.0f);
  }
  for (int64_t k = 0; k < columns; ++k, panel += kPanel) {
    Wide of_r[kVectors];
    TOS_UNROLL
    for (int v = 0; v < kVectors; ++v) of_r[v] = Wide::load(panel + v * Wide::kWidth);
    TOS_UNROLL
    for (int b = 0; b < kBatch; ++b) {
      const Wide of_x = Wide::all(x[b * columns + k]);
      TOS_UNROLL
      for (int v = 0; v < kVectors; ++v) total[b][v] = of_r[v].times_plus(of_x, total[b][v]);
    }
  }
  for (int b = 0; b < kBatch; ++b) {
    float whole[kPanel];
    float* to = count < kPanel ? whole : y + b * y_stride;
    for (int v = 0; v < kVectors; ++v) total[b][v].store(to + v * Wide::kWidth);
    if (count < kPanel) std::memcpy(y + b * y_stride, whole, sizeof(float) * static_cast<size_t>(count));
  }
}

void step_packed_product(const float* packed, int64_t rows, int64_t columns, const float* x, int64_t batch,
                         float* y) {
  for (int64_t first = 0; first < rows; first += kPanel, packed += kPanel * columns) {
    const int64_t count = rows - first < kPanel ? rows - first : kPanel;
    int64_t b = 0;
    for (; b + 4 <= batch; b += 4) {
      panel_tile<4>(packed, columns, x + b * columns, y + b * rows + first, rows, count);
    }
    const float* tail = x + b * columns;
    float* to = y + b * rows + first;
    if (batch - b == 3) panel_tile<3>(packed, columns, tail, to, rows, count);
    if (batch - b == 2) panel_tile<2>(packed, columns, tail, to, rows, count);
    if (batch - b == 1) panel_tile<1>(packed, columns, tail, to, rows, count);
  }
}

constexpr StepKernels kSteps = {step_product, kPanel,          step_pack,      step_packed_product,
                                lstm_step,    gru_linear_step, gru_reset_step, gru_step};

}  // namespace
