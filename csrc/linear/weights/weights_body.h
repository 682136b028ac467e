// The kernels of weights.h on numbers of few bits. Included once by each file of kernels, behind its lanes:
// `Wide`, `Row` (eight lanes or fewer) and `Bytes` name them. Everything is local
// to that file.
namespace {

// Numbers in a block of codes are read `kWidth` bytes at once; the part p of a byte is number p of it. So a
// chunk of x holds first the factors of the numbers 0 of its bytes, then those of the numbers 1, and so on.
int64_t place_of(int64_t k, int parts, int64_t chunk_bytes) {
  const int64_t byte = k / parts, part = k % parts;
  return (byte / chunk_bytes * parts + part) * chunk_bytes + byte % chunk_bytes;
}

template <typename L>
L load_reals_up_to(Real type, const void* from, int64_t at, int64_t count) {
  if (count >= L::kWidth) return load_reals<L>(type, from, at);
  float tail[L::kWidth] = {};
  for (int64_t i = 0; i < count; ++i) tail[i] = real_at(type, from, at + i);
  return L::load(tail);
}

// The zero points of some blocks, `count` of them at least one.
template <int kBits>
Row zeros_at(const QuantizedWeight& w, int64_t row, int64_t block, int64_t count) {
  if (w.zeros == nullptr) return Row::all(1 << (kBits - 1));
  if (!w.packed_zeros) return load_reals_up_to<Row>(w.zero_type, w.zeros, row * w.blocks + block, count);
  const int64_t present = count < Row::kWidth ? count : Row::kWidth;
  const uint8_t* from = static_cast<const uint8_t*>(w.zeros) + row * w.zero_bytes() + block * kBits / 8;
  return Row::in_order<kBits>(some_bytes(from, (present * kBits + 7) / 8));
}

Row scales_at(const QuantizedWeight& w, int64_t row, int64_t block, int64_t count) {
  return load_reals_up_to<Row>(w.scale_type, w.scales, row * w.blocks + block, count);
}

// Scales of a row, and what its zero points add to each product: they are beside the middle of the range.
template <int kBits, int kRows>
const float* row_of_scales(const QuantizedWeight& w, const Activations& x, int64_t row, float* scratch,
                           float* zero_point_sum) {
  TOS_UNROLL
  for (int m = 0; m < kRows; ++m) zero_point_sum[m] = 0.0f;
  if (w.zeros == nullptr && w.scale_type == Real::kFloat) {
    return static_cast<const float*>(w.scales) + row * w.blocks;
  }
  Row total[kRows];
  TOS_UNROLL
  for (int m = 0; m < kRows; ++m) total[m] = Row::all(0.0f);
  const Row half = Row::all(1 << (kBits - 1)), minus = Row::all(-1.0f);
  for (int64_t b = 0; b < w.blocks; b += Row::kWidth) {
    const Row scale = scales_at(w, row, b, w.blocks - b);
    scale.store(scratch + b);
    if (w.zeros == nullptr) continue;
    const Row shift = scale * fused(zeros_at<kBits>(w, row, b, w.blocks - b), minus, half);
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) {
      total[m] = fused(shift, Row::load(x.sums + m * x.padded_blocks + b), total[m]);
    }
  }
  TOS_UNROLL
  for (int m = 0; m < kRows; ++m) zero_point_sum[m] = total[m].sum();
  return scratch;
}

// Rows of the weight that are read at once beside so many rows of activations: each is a stream of memory of
// its own, and their sums stay in registers.
constexpr int together(int rows) {
  const int streams = Wide::kWidth == 16 ? kTogether : kTogether / 2;
  return streams / rows > 1 ? streams / rows : 1;
}

// Where the scales of some block lie.
const char* scale_address(const QuantizedWeight& w, int64_t row, int64_t block) {
  return static_cast<const char*>(w.scales) + (row * w.blocks + block) * bytes_of(w.scale_type);
}

// By floats: every block holds whole chunks of L::kWidth bytes.
template <typename L, int kBits, int kRows, int kWeightRows>
void multiply_floats(const QuantizedWeight& w, const Activations& x, int64_t n, float* y, int64_t y_stride,
                     float* scratch) {
  constexpr int kParts = 8 / kBits;
  const int64_t chunks = w.block_bytes / L::kWidth, bytes = w.row_bytes();
  const float* scale[kWeightRows];
  float zero_point_sum[kWeightRows][kRows];
  L total[kWeightRows][kRows];
  TOS_UNROLL
  for (int j = 0; j < kWeightRows; ++j) {
    scale[j] = row_of_scales<kBits, kRows>(w, x, n + j, scratch + j * x.padded_blocks, zero_point_sum[j]);
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) total[j][m] = L::all(0.0f);
  }
  const uint8_t* code = w.codes + n * bytes;
  const float* factor = x.values;
  for (int64_t b = 0; b < w.blocks; ++b) {
    L part[kWeightRows][kRows];
    TOS_UNROLL
    for (int j = 0; j < kWeightRows; ++j) {
      TOS_UNROLL
      for (int m = 0; m < kRows; ++m) part[j][m] = L::all(0.0f);
    }
    for (int64_t c = 0; c < chunks; ++c) {
      TOS_UNROLL
      for (int j = 0; j < kWeightRows; ++j) {
        L number[kParts];
        L::template split<kBits>(code + j * bytes, number);
        TOS_PREFETCH(code + (j + kWeightRows) * bytes);
        TOS_UNROLL
        for (int p = 0; p < kParts; ++p) {
          TOS_UNROLL
          for (int m = 0; m < kRows; ++m) {
            part[j][m] = fused(number[p], L::load(factor + m * x.width + p * L::kWidth), part[j][m]);
          }
        }
      }
      code += L::kWidth;
      factor += kParts * L::kWidth;
    }
    TOS_UNROLL
    for (int j = 0; j < kWeightRows; ++j) {
      TOS_PREFETCH(scale_address(w, n + j + kWeightRows, b));
      const L of_block = L::all(scale[j][b]);
      TOS_UNROLL
      for (int m = 0; m < kRows; ++m) total[j][m] = fused(part[j][m], of_block, total[j][m]);
    }
  }
  TOS_UNROLL
  for (int j = 0; j < kWeightRows; ++j) {
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) y[m * y_stride + n + j] = total[j][m].sum() + zero_point_sum[j][m];
  }
}

// By bytes, several blocks in one chunk of B::kWidth bytes, or one block in several chunks.
template <typename B, int kBits, int kRows, bool kSeveral, int kWeightRows>
void multiply_bytes(const QuantizedWeight& w, const Activations& x, int64_t n, float* y, int64_t y_stride,
                    float* scratch) {
  using L = typename B::Lanes;
  constexpr int kParts = 8 / kBits;
  const typename B::Places places(w.block_bytes);
  const int64_t bytes = w.row_bytes(), step = kSeveral ? B::kWidth : w.block_bytes;
  const int64_t advance = kSeveral ? B::kWidth / w.block_bytes : 1;
  const int64_t groups = (bytes + step - 1) / step;
  // The first group whose scales are not followed by as many as are read at once.
  const int64_t short_group = !kSeveral              ? groups
                              : w.blocks < L::kWidth ? 0
                                                     : (w.blocks - L::kWidth) / advance + 1;
  const float* scale[kWeightRows];
  float zero_point_sum[kWeightRows][kRows], tail_scales[kWeightRows][2 * L::kWidth];
  L total[kWeightRows][kRows];
  TOS_UNROLL
  for (int j = 0; j < kWeightRows; ++j) {
    scale[j] = row_of_scales<kBits, kRows>(w, x, n + j, scratch + j * x.padded_blocks, zero_point_sum[j]);
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) total[j][m] = L::all(0.0f);
    if (!kSeveral) continue;
    const int64_t left = w.blocks - short_group * advance;
    std::memset(tail_scales[j], 0, sizeof(tail_scales[j]));
    if (left > 0)
      std::memcpy(tail_scales[j], scale[j] + short_group * advance, static_cast<size_t>(left) * 4);
  }
  const uint8_t* code = w.codes + n * bytes;
  const int8_t* factor = x.bytes;
  for (int64_t g = 0; g < groups; ++g) {
    if (kSeveral && g == short_group) {
      TOS_UNROLL
      for (int j = 0; j < kWeightRows; ++j) scale[j] = tail_scales[j];
    }
    B part[kWeightRows][kRows];
    TOS_UNROLL
    for (int j = 0; j < kWeightRows; ++j) {
      TOS_UNROLL
      for (int m = 0; m < kRows; ++m) {
        part[j][m] = B::load(x.starts + m * x.width / 4 + g * L::kWidth);
      }
    }
    for (int64_t c = 0; c < step; c += B::kWidth) {
      const int64_t at = g * step + c;
      TOS_UNROLL
      for (int j = 0; j < kWeightRows; ++j) {
        const uint8_t* chunk = code + j * bytes + at;
        TOS_PREFETCH(chunk + kWeightRows * bytes);
        uint8_t last[B::kWidth];
        if (kSeveral && at + B::kWidth > bytes) {
          std::memset(last, 0, sizeof(last));
          std::memcpy(last, chunk, static_cast<size_t>(bytes - at));
          chunk = last;
        }
        TOS_UNROLL
        for (int p = 0; p < kParts; ++p) {
          TOS_UNROLL
          for (int m = 0; m < kRows; ++m) {
            B::template add<kBits>(chunk, factor + m * x.width + p * B::kWidth, p, part[j][m]);
          }
        }
      }
      factor += kParts * B::kWidth;
    }
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const float* from = x.scales + m * x.padded_blocks + g * advance;
      const L of_row = kSeveral ? places.spread(from) : L::all(*from);
      TOS_UNROLL
      for (int j = 0; j < kWeightRows; ++j) {
        const L of_block = kSeveral ? places.spread(scale[j]) : L::all(*scale[j]);
        total[j][m] = fused(part[j][m].reals() * of_row, of_block, total[j][m]);
      }
    }
    TOS_UNROLL
    for (int j = 0; j < kWeightRows; ++j) {
      TOS_PREFETCH(scale_address(w, n + j + kWeightRows, g * advance));
      scale[j] += advance;
    }
  }
  TOS_UNROLL
  for (int j = 0; j < kWeightRows; ++j) {
    TOS_UNROLL
    for (int m = 0; m < kRows; ++m) y[m * y_stride + n + j] = total[j][m].sum() + zero_point_sum[j][m];
  }
}

// The lanes whose bytes divide every block.
template <typename Visit>
void with_lanes(int64_t block_bytes, const Visit& visit) {
  if (block_bytes % Wide::kWidth == 0) {
    visit(Wide::all(0.0f));
  } else if (block_bytes % Row::kWidth == 0) {
    visit(Row::all(0.0f));
  } else {
    visit(Lanes4::all(0.0f));
  }
}

template <int kValue>
struct Constant {
  static constexpr int kOf = kValue;
};

template <typename Visit>
void with_bits(int bits, const Visit& visit) {
  if (bits == 4) {
    visit(Constant<4>{});
  } else if (bits == 8) {
    visit(Constant<8>{});
  } else {
    visit(Constant<2>{});
  }
}

// Of rows of the weight from `n` on.
template <int kRows, int kWeightRows>
void multiply_together(const QuantizedWeight& w, const Activations& x, int64_t n, float* y, int64_t y_stride,
                       float* scratch) {
  with_bits(w.bits, [&](auto bits) {
    constexpr int kBits = decltype(bits)::kOf;
    if (x.bytes != nullptr) {
      const bool several = w.block_bytes < Bytes::kWidth;
      (several ? multiply_bytes<Bytes, kBits, kRows, true, kWeightRows>
               : multiply_bytes<Bytes, kBits, kRows, false, kWeightRows>)(w, x, n, y, y_stride, scratch);
    } else {
      with_lanes(w.block_bytes, [&](auto lanes) {
        multiply_floats<decltype(lanes), kBits, kRows, kWeightRows>(w, x, n, y, y_stride, scratch);
      });
    }
  });
}

template <int kRows>
void multiply_rows(const QuantizedWeight& w, const Activations& x, int64_t begin, int64_t end, float* y,
                   int64_t y_stride, float* scratch) {
  constexpr int kWeightRows = together(kRows);
  int64_t n = begin;
  for (; n + kWeightRows <= end; n += kWeightRows)
    multiply_together<kRows, kWeightRows>(w, x, n, y, y_stride, scratch);
  for (; n < end; ++n) multiply_together<kRows, 1>(w, x, n, y, y_stride, scratch);
}

void multiply(const QuantizedWeight& w, const Activations& x, int count, int64_t begin, int64_t end, float* y,
              int64_t y_stride, float* scratch) {
  static_assert(kRowsAtOnce == 4);
  constexpr decltype(&multiply_rows<1>) kByCount[] = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>,
                                                      multiply_rows<4>};
  kByCount[count - 1](w, x, begin, end, y, y_stride, scratch);
}

float largest(const float* x, int64_t count) {
  float greatest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float size = x[i] < 0.0f ? -x[i] : x[i];
    greatest = size > greatest ? size : greatest;
  }
  return greatest;
}

void arrange_bytes(const QuantizedWeight& w, const float* x, const Activations& row) {
  const int parts = 8 / w.bits;
  const int64_t block_size = w.block_bytes * parts;
  std::memset(row.bytes, 0, static_cast<size_t>(row.width));
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to even.
  constexpr float kRound = 12582912.0f;
  for (int64_t b = 0; b < w.blocks; ++b) {
    const float* from = x + b * block_size;
    const float greatest = largest(from, block_size);
    const float scale = greatest / 127.0f, inverse = scale > 0.0f ? 127.0f / greatest : 0.0f;
    int32_t sum = 0;
    for (int64_t i = 0; i < block_size; ++i) {
      const int32_t byte = static_cast<int32_t>((from[i] * inverse + kRound) - kRound);
      row.bytes[place_of(b * block_size + i, parts, Bytes::kWidth)] = static_cast<int8_t>(byte);
      sum += byte;
    }
    row.scales[b] = scale;
    row.sums[b] = scale * static_cast<float>(sum);
  }
  // The codes are not negative: what half their range adds too much is taken off where a sum starts.
  const int64_t step = w.block_bytes < Bytes::kWidth ? Bytes::kWidth : w.block_bytes;
  const int64_t groups = (w.row_bytes() + step - 1) / step, lanes = Bytes::kWidth / 4;
  const int8_t* byte = row.bytes;
  for (int64_t g = 0; g < groups; ++g) {
    int32_t* start = row.starts + g * lanes;
    for (int64_t i = 0; i < lanes; ++i) start[i] = 0;
    for (int64_t c = 0; c < step / Bytes::kWidth * parts; ++c) {
      for (int64_t i = 0; i < Bytes::kWidth; ++i) start[i / 4] -= *byte++ * (1 << (w.bits - 1));
    }
  }
}

void arrange_floats(const QuantizedWeight& w, const float* x, const Activations& row) {
  const int parts = 8 / w.bits;
  const int64_t block_size = w.block_bytes * parts, count = w.numbers();
  int64_t chunk = 0;
  with_lanes(w.block_bytes, [&](auto lanes) { chunk = decltype(lanes)::kWidth; });
  for (int64_t k = 0; k < row.width; ++k) row.values[k] = 0.0f;
  for (int64_t k = 0; k < count; ++k) row.values[place_of(k, parts, chunk)] = x[k];
  for (int64_t b = 0; b < w.blocks; ++b) {
    double sum = 0.0;
    for (int64_t i = 0; i < block_size; ++i) sum += x[b * block_size + i];
    row.sums[b] = static_cast<float>(sum);
  }
}

void arrange(const QuantizedWeight& w, const float* x, Activations row) {
  for (int64_t b = 0; b < row.padded_blocks; ++b) row.sums[b] = 0.0f;
  if (row.bytes == nullptr) {
    arrange_floats(w, x, row);
    return;
  }
  for (int64_t b = 0; b < row.padded_blocks; ++b) row.scales[b] = 0.0f;
  arrange_bytes(w, x, row);
}

template <typename L, int kBits>
void unpack_rows(const QuantizedWeight& w, int64_t begin, int64_t end, int64_t width, float* out) {
  constexpr int kParts = 8 / kBits;
  for (int64_t n = begin; n < end; ++n, out += width) {
    const uint8_t* code = w.codes + n * w.row_bytes();
    float* to = out;
    for (int64_t b = 0; b < w.blocks; b += Row::kWidth) {
      const int64_t count = w.blocks - b < Row::kWidth ? w.blocks - b : Row::kWidth;
      float scale[Row::kWidth], shift[Row::kWidth];
      scales_at(w, n, b, count).store(scale);
      fused(zeros_at<kBits>(w, n, b, count), Row::all(-1.0f), Row::all(1 << (kBits - 1))).store(shift);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t c = 0; c < w.block_bytes; c += L::kWidth) {
          L number[kParts];
          L::template split<kBits>(code, number);
          TOS_UNROLL
          for (int p = 0; p < kParts; ++p) {
            ((number[p] + L::all(shift[i])) * L::all(scale[i])).store(to + p * L::kWidth);
          }
          code += L::kWidth;
          to += kParts * L::kWidth;
        }
      }
    }
    for (; to < out + width; ++to) *to = 0.0f;
  }
}

void unpack(const QuantizedWeight& w, int64_t begin, int64_t end, int64_t width, float* out) {
  with_bits(w.bits, [&](auto bits) {
    with_lanes(w.block_bytes, [&](auto lanes) {
      unpack_rows<decltype(lanes), decltype(bits)::kOf>(w, begin, end, width, out);
    });
  });
}

}  // namespace
