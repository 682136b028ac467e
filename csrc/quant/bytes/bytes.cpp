// Elementwise ops on quantized tensors in one pass: to other scales, sums, products, and by a table.
#include "quant/bytes/bytes.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>
#include <optional>

namespace tos {

namespace {

constexpr int64_t kGrain = 1 << 15;

bool is_byte(at::ScalarType type) { return type == at::kByte || type == at::kChar; }

Whole whole(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return Whole::kUint8;
    case at::kChar:
      return Whole::kInt8;
    case at::kInt:
      return Whole::kInt32;
    case at::kFloat:
      return Whole::kFloat;
    default:
      TORCH_CHECK_VALUE(false, "numbers are uint8, int8, int32 or float32, not ", type);
  }
}

float scale_of(const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.scalar_type() == at::kFloat && scale.numel() == 1, "a scale is one float32");
  return *scale.const_data_ptr<float>();
}

float zero_of(const std::optional<at::Tensor>& zero) {
  if (!zero.has_value()) return 0.0f;
  TORCH_CHECK_VALUE(is_byte(zero->scalar_type()) && zero->numel() == 1, "a zero point is one int8 or uint8");
  return zero->scalar_type() == at::kByte ? static_cast<float>(*zero->const_data_ptr<uint8_t>())
                                          : static_cast<float>(*zero->const_data_ptr<int8_t>());
}

// `row(y, a, b, a_step, b_step, count)` over the rows of a result of bytes, which lie side by side, and of
// its two inputs, broadcast; steps are in bytes.
template <typename Row>
at::Tensor over(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, const Row& row) {
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .check_all_same_dtype(false)
                                    .add_owned_output(at::Tensor())
                                    .add_const_input(a)
                                    .add_const_input(b)
                                    .declare_static_dtype_and_device(type, a.device())
                                    .build();
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t count, int64_t rows) {
        char *to = data[0], *left = data[1], *right = data[2];
        for (int64_t done = 0; done < rows; ++done) {
          if (strides[0] == 1) {
            row(to, left, right, strides[1], strides[2], count);
          } else {
            for (int64_t i = 0; i < count; ++i) {
              row(to + i * strides[0], left + i * strides[1], right + i * strides[2], 0, 0, 1);
            }
          }
          to += strides[3];
          left += strides[4];
          right += strides[5];
        }
      },
      kGrain);
  return iterator.output();
}

at::Tensor requantize(const at::Tensor& x, const std::optional<at::Tensor>& x_zero, const at::Tensor& factor,
                      bool divide, const std::optional<at::Tensor>& zero, at::ScalarType dtype,
                      int64_t instructions) {
  TORCH_CHECK_VALUE(is_byte(dtype), "requantize: the result is int8 or uint8, not ", dtype);
  TORCH_CHECK_VALUE(factor.scalar_type() == at::kFloat, "requantize: a factor is float32");
  const ByteKernels& kernels = bytes_for(instructions);
  const Whole from = whole(x.scalar_type()), to = whole(dtype);
  const float before = zero_of(x_zero), behind = zero_of(zero);
  const auto size = static_cast<int64_t>(x.element_size());
  return over(x, factor, dtype,
              [&](char* y, char* numbers, char* by, int64_t step, int64_t by_step, int64_t n) {
                kernels.requantize({numbers, from, step / size}, before, reinterpret_cast<const float*>(by),
                                   by_step / static_cast<int64_t>(sizeof(float)), divide, behind, to, y, n);
              });
}

at::Tensor quantized_pair(const at::Tensor& a, const at::Tensor& a_scale,
                          const std::optional<at::Tensor>& a_zero, const at::Tensor& b,
                          const at::Tensor& b_scale, const std::optional<at::Tensor>& b_zero,
                          const at::Tensor& scale, const std::optional<at::Tensor>& zero, bool product,
                          int64_t instructions) {
  TORCH_CHECK_VALUE(is_byte(a.scalar_type()) && b.scalar_type() == a.scalar_type(),
                    "quantized_pair: the inputs are both int8 or both uint8");
  const ByteKernels& kernels = bytes_for(instructions);
  const Whole type = whole(a.scalar_type());
  const Quantized of_a{scale_of(a_scale), zero_of(a_zero)}, of_b{scale_of(b_scale), zero_of(b_zero)},
      of_y{scale_of(scale), zero_of(zero)};
  const Pair how = product ? Pair::kProduct : Pair::kSum;
  return over(a, b, a.scalar_type(),
              [&](char* y, char* left, char* right, int64_t step, int64_t other, int64_t n) {
                kernels.combine(how, {left, type, step}, of_a, {right, type, other}, of_b, of_y, y, n);
              });
}

// table[x] for numbers of 8 bits: int8 counts from -128 on.
at::Tensor by_table(const at::Tensor& x, const at::Tensor& table) {
  TORCH_CHECK_VALUE(is_byte(x.scalar_type()) && is_byte(table.scalar_type()) && table.numel() == 256,
                    "by_table: a table has 256 numbers of 8 bits, one for each of those it is asked for");
  const at::Tensor dense = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  const at::Tensor entries = table.contiguous();
  at::Tensor y = at::empty_like(dense, x.options().dtype(table.scalar_type()));
  const auto* from = static_cast<const uint8_t*>(dense.const_data_ptr());
  const auto* held = static_cast<const uint8_t*>(entries.const_data_ptr());
  auto* to = static_cast<uint8_t*>(y.mutable_data_ptr());
  const uint8_t turn = x.scalar_type() == at::kChar ? 128 : 0;
  at::parallel_for(0, dense.numel(), kGrain, [&](int64_t first, int64_t last) {
    // In reach of the compiler, which cannot tell that `to` is not part of the table.
    std::array<uint8_t, 256> own;
    for (size_t i = 0; i < own.size(); ++i) own[i] = held[static_cast<uint8_t>(i) ^ turn];
    int64_t i = first;
    for (; i + 4 <= last; i += 4) {
      const uint8_t one = own[from[i]], two = own[from[i + 1]], three = own[from[i + 2]],
                    four = own[from[i + 3]];
      to[i] = one;
      to[i + 1] = two;
      to[i + 2] = three;
      to[i + 3] = four;
    }
    for (; i < last; ++i) to[i] = own[from[i]];
  });
  return y;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("requantize", &tos::requantize);
  m.impl("quantized_pair", &tos::quantized_pair);
  m.impl("by_table", &tos::by_table);
}
