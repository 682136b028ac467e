// Lanes without any particular instructions. Included once by each file of kernels, behind the pragma that
// sets its instructions: everything is local to that file, or the linker would mix the sets.
#pragma once

// Every file of kernels has these in front of its pragma as well.
#include <cstdint>
#include <cstring>

namespace {

#if defined(__clang__)
#define TOS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TOS_UNROLL _Pragma("GCC unroll 8")
#endif

// Asks for memory that is read soon; an address that is not there does no harm.
#if defined(__GNUC__)
#define TOS_PREFETCH(address) __builtin_prefetch(address)
#else
#define TOS_PREFETCH(address) static_cast<void>(address)
#endif

float real_of(uint32_t bits) {
  float real;
  std::memcpy(&real, &bits, sizeof(real));
  return real;
}

float real_of_bfloat(uint16_t bits) { return real_of(static_cast<uint32_t>(bits) << 16); }

// By a product that moves the exponent to where float32 has it; infinities and NaNs keep all exponent bits.
float real_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  if ((bits & 0x7c00u) == 0x7c00u) return real_of(sign | 0x7f800000u | magnitude);
  const float moved = real_of(magnitude) * real_of(0x77800000u);
  return (sign != 0) ? -moved : moved;
}

// The bytes of a number of lanes or less, zeros behind.
[[maybe_unused]] uint64_t some_bytes(const uint8_t* from, int64_t count) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, static_cast<size_t>(count));
  return bytes;
}

struct Lanes4 {
  static constexpr int kWidth = 4;
  float v[kWidth];

  static Lanes4 all(float value) { return {{value, value, value, value}}; }
  static Lanes4 load(const float* from) {
    Lanes4 lanes;
    std::memcpy(lanes.v, from, sizeof(lanes.v));
    return lanes;
  }
  static Lanes4 load_half(const uint16_t* from) {
    return {{real_of_half(from[0]), real_of_half(from[1]), real_of_half(from[2]), real_of_half(from[3])}};
  }
  static Lanes4 load_bfloat(const uint16_t* from) {
    return {
        {real_of_bfloat(from[0]), real_of_bfloat(from[1]), real_of_bfloat(from[2]), real_of_bfloat(from[3])}};
  }
  void store(float* to) const { std::memcpy(to, v, sizeof(v)); }

  Lanes4 operator+(const Lanes4& b) const {
    return {{v[0] + b.v[0], v[1] + b.v[1], v[2] + b.v[2], v[3] + b.v[3]}};
  }
  Lanes4 operator*(const Lanes4& b) const {
    return {{v[0] * b.v[0], v[1] * b.v[1], v[2] * b.v[2], v[3] * b.v[3]}};
  }
  // c plus the products with b.
  Lanes4 times_plus(const Lanes4& b, const Lanes4& c) const { return *this * b + c; }
  float sum() const { return (v[0] + v[2]) + (v[1] + v[3]); }

  // Numbers of as many bytes as there are lanes, less half of their range: number p of each byte.
  template <int kBits>
  static void split(const uint8_t* from, Lanes4* numbers) {
    constexpr int kMask = (1 << kBits) - 1, kHalf = 1 << (kBits - 1);
    TOS_UNROLL
    for (int p = 0; p < 8 / kBits; ++p) {
      for (int i = 0; i < kWidth; ++i) {
        numbers[p].v[i] = static_cast<float>(((from[i] >> (p * kBits)) & kMask) - kHalf);
      }
    }
  }
  // As many numbers as there are lanes, in their order, the first in the lowest bits.
  template <int kBits>
  static Lanes4 in_order(uint64_t bytes) {
    Lanes4 lanes;
    TOS_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      lanes.v[i] = static_cast<float>((bytes >> (i * kBits)) & ((1u << kBits) - 1));
    }
    return lanes;
  }
};

// Sums of products of bytes, of 4 bytes a lane.
struct Bytes16 {
  using Lanes = Lanes4;
  static constexpr int kWidth = 16;
  int32_t v[4];

  static Bytes16 load(const int32_t* from) { return {{from[0], from[1], from[2], from[3]}}; }

  // Adds the products of number p of each of `codes` and of the bytes of x.
  template <int kBits>
  static void add(const uint8_t* codes, const int8_t* x, int p, Bytes16& total) {
    for (int i = 0; i < kWidth; ++i) {
      const int code = (codes[i] >> (p * kBits)) & ((1 << kBits) - 1);
      total.v[i / 4] += code * x[i];
    }
  }
  Lanes4 reals() const {
    Lanes4 lanes;
    for (int i = 0; i < 4; ++i) lanes.v[i] = static_cast<float>(v[i]);
    return lanes;
  }
  // What each lane finds `bytes >> 2` lanes a place.
  struct Places {
    int of[4];
    explicit Places(int64_t block_bytes) {
      for (int i = 0; i < 4; ++i) of[i] = static_cast<int>(4 * i / block_bytes);
    }
    Lanes4 spread(const float* from) const { return {{from[of[0]], from[of[1]], from[of[2]], from[of[3]]}}; }
  };
};

}  // namespace
