// The bodies of bytes.h. Included once by each file of kernels, behind the pragma that sets its instructions.
// Loops run over blocks of one fixed length, which every compiler turns into the instructions that it has.
#pragma once

namespace {

constexpr int kBlock = 64;

// Adding and taking away this rounds to even what lies within 2^22.
constexpr float kRounding = 12582912.0f;

template <typename From>
void widen(const From* from, int64_t step, int count, float zero, float* to) {
  if (step == 1 && count == kBlock) {
    for (int i = 0; i < kBlock; ++i) to[i] = static_cast<float>(from[i]) - zero;
    return;
  }
  for (int i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * step]) - zero;
}

// Numbers `first` to `first + count`, less their zero point.
void take(const Numbers& x, int64_t first, int count, float zero, float* to) {
  const int64_t start = first * x.step;
  switch (x.type) {
    case Whole::kUint8:
      return widen(static_cast<const uint8_t*>(x.data) + start, x.step, count, zero, to);
    case Whole::kInt8:
      return widen(static_cast<const int8_t*>(x.data) + start, x.step, count, zero, to);
    case Whole::kInt32:
      return widen(static_cast<const int32_t*>(x.data) + start, x.step, count, zero, to);
    case Whole::kFloat:
      return widen(static_cast<const float*>(x.data) + start, x.step, count, zero, to);
  }
}

template <typename To>
void narrow(const float* from, float zero, int count, To* to) {
  // Zero points are whole, so that what is held in the range before it is rounded stays there.
  const float low = (std::is_same_v<To, int8_t> ? -128.0f : 0.0f) - zero, high = low + 255.0f;
  int32_t whole[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    float held = from[i] > low ? from[i] : low;
    held = held < high ? held : high;
    const float moved = ((held + kRounding) - kRounding) + zero;
    whole[i] = static_cast<int32_t>(from[i] == from[i] ? moved : 0.0f);
  }
  if (count == kBlock) {
    for (int i = 0; i < kBlock; ++i) to[i] = static_cast<To>(whole[i]);
    return;
  }
  for (int i = 0; i < count; ++i) to[i] = static_cast<To>(whole[i]);
}

void put(const float* from, float zero, int count, Whole to, void* y, int64_t first) {
  if (to == Whole::kInt8) {
    narrow(from, zero, count, static_cast<int8_t*>(y) + first);
  } else {
    narrow(from, zero, count, static_cast<uint8_t*>(y) + first);
  }
}

void requantize(Numbers x, float x_zero, const float* factor, int64_t factor_step, bool divide, float zero,
                Whole to, void* y, int64_t count) {
  float block[kBlock] = {}, by[kBlock];
  for (float& one : by) one = *factor;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int length = static_cast<int>(count - first < kBlock ? count - first : kBlock);
    take(x, first, length, x_zero, block);
    if (factor_step != 0) {
      for (int i = 0; i < length; ++i) by[i] = factor[(first + i) * factor_step];
    }
    if (divide) {
      for (int i = 0; i < kBlock; ++i) block[i] = block[i] / by[i];
    } else {
      for (int i = 0; i < kBlock; ++i) block[i] = block[i] * by[i];
    }
    put(block, zero, length, to, y, first);
  }
}

void combine(Pair how, Numbers a, Quantized of_a, Numbers b, Quantized of_b, Quantized of_y, void* y,
             int64_t count) {
  float left[kBlock] = {}, right[kBlock] = {};
  const float factor = of_a.scale * of_b.scale / of_y.scale;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int length = static_cast<int>(count - first < kBlock ? count - first : kBlock);
    take(a, first, length, of_a.zero, left);
    take(b, first, length, of_b.zero, right);
    if (how == Pair::kSum) {
      for (int i = 0; i < kBlock; ++i) left[i] = (left[i] * of_a.scale + right[i] * of_b.scale) / of_y.scale;
    } else {
      for (int i = 0; i < kBlock; ++i) left[i] = left[i] * right[i] * factor;
    }
    put(left, of_y.zero, length, a.type, y, first);
  }
}

}  // namespace
