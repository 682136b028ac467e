#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <vector>

#include "core/reals.h"
#include "elementwise/chain/chain.h"

// What the op that computes chains of elementwise steps is given, on any device.
namespace tos {

inline ChainProgram chain_program(int64_t inputs, at::IntArrayRef program, at::ArrayRef<double> constants) {
  constexpr int64_t kEach = 4;
  TORCH_CHECK_VALUE(inputs >= 1 && inputs <= kChainInputs, "elementwise_chain: ", inputs,
                    " inputs, not 1 to ", kChainInputs);
  TORCH_CHECK_VALUE(constants.size() <= kChainConstants, "elementwise_chain: ", constants.size(),
                    " constants, more than ", kChainConstants);
  const int64_t rows = static_cast<int64_t>(program.size()) / kEach;
  TORCH_CHECK_VALUE(program.size() % kEach == 0 && rows >= 1 && rows <= kChainRows,
                    "elementwise_chain: ", program.size(), " numbers are not 1 to ", kChainRows, " rows of ",
                    kEach);
  ChainProgram chain{};
  chain.inputs = static_cast<int>(inputs);
  chain.constants = static_cast<int>(constants.size());
  chain.rows = static_cast<int>(rows);
  for (int i = 0; i < chain.constants; ++i) chain.constant[i] = static_cast<float>(constants[i]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* entry = program.data() + row * kEach;
    TORCH_CHECK_VALUE(entry[0] >= 0 && entry[0] < static_cast<int64_t>(ChainCode::kCount),
                      "elementwise_chain: row ", row, ": ", entry[0], " is no number of a code");
    chain.row[row].code = static_cast<int8_t>(entry[0]);
    const ChainCode code = static_cast<ChainCode>(entry[0]);
    const int takes = chain_operands(code);
    const int64_t registers = inputs + chain.constants + row;
    for (int i = 0; i < 3; ++i) {
      const int64_t operand = entry[1 + i];
      const bool absent = i >= takes || (code == ChainCode::kClip && i > 0 && operand == -1);
      if (absent) {
        TORCH_CHECK_VALUE(operand == -1, "elementwise_chain: row ", row, ": code ", entry[0], " takes ",
                          takes, " operands, not ", operand, " as well");
      } else {
        TORCH_CHECK_VALUE(operand >= 0 && operand < registers, "elementwise_chain: row ", row,
                          " reads register ", operand, " of ", registers);
      }
      chain.row[row].operands[i] = static_cast<int8_t>(operand);
    }
  }
  return chain;
}

// Of all inputs, which are of one type on one device.
inline at::DimVector chain_shape(at::TensorList inputs) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() <= kChainInputs, "elementwise_chain: ", inputs.size(),
                    " inputs, not 1 to ", kChainInputs);
  const at::Tensor& first = inputs.front();
  TORCH_CHECK_VALUE(is_real(first), "elementwise_chain: input 0 is ", first.scalar_type(),
                    ", not float32, float16 or bfloat16");
  at::DimVector shape(first.sizes());
  for (size_t i = 1; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    TORCH_CHECK_VALUE(input.scalar_type() == first.scalar_type() && input.device() == first.device(),
                      "elementwise_chain: input ", i, " is ", input.scalar_type(), " on ", input.device(),
                      ", input 0 ", first.scalar_type(), " on ", first.device());
    if (input.sizes() != at::IntArrayRef(shape)) shape = at::infer_size_dimvector(shape, input.sizes());
  }
  return shape;
}

inline at::Tensor chain_result(at::TensorList inputs) {
  const at::DimVector shape = chain_shape(inputs);
  return at::empty(shape, inputs.front().options().memory_format(at::MemoryFormat::Contiguous));
}

inline void check_chain_out(at::TensorList inputs, at::IntArrayRef shape, const at::Tensor& out) {
  TORCH_CHECK_VALUE(out.scalar_type() == inputs.front().scalar_type() &&
                        out.device() == inputs.front().device() && out.sizes() == shape &&
                        out.is_contiguous(),
                    "elementwise_chain: the result does not fit into what is given for it");
  for (const at::Tensor& input : inputs) at::assert_no_partial_overlap(out, input);
}

// Inputs as a kernel reads them, and copies of those that lie in more pieces than it knows.
template <class Index>
struct ChainInputs {
  ChainInput<Index> each[kChainInputs];
  std::vector<at::Tensor> copies;
};

// Gives whether it fits into kChainDims.
template <class Index>
bool chain_input(const at::Tensor& tensor, at::IntArrayRef shape, ChainInput<Index>& input) {
  input.data = tensor.const_data_ptr();
  input.dims = 0;
  const int64_t missing = static_cast<int64_t>(shape.size()) - tensor.dim();
  for (int64_t axis = static_cast<int64_t>(shape.size()) - 1; axis >= 0; --axis) {
    const int64_t size = shape[axis];
    if (size == 1) continue;
    const int64_t own = axis - missing;
    const int64_t stride = own < 0 || tensor.size(own) == 1 ? 0 : tensor.stride(own);
    const int last = input.dims - 1;
    if (last >= 0 && stride == static_cast<int64_t>(input.stride[last]) * input.size[last]) {
      input.size[last] *= static_cast<Index>(size);
    } else if (input.dims == kChainDims) {
      return false;
    } else {
      input.size[input.dims] = static_cast<Index>(size);
      input.stride[input.dims++] = static_cast<Index>(stride);
    }
  }
  if (input.dims == 0) {
    input.dims = 1;
    input.size[0] = input.stride[0] = 1;
  }
  return true;
}

template <class Index>
ChainInputs<Index> chain_inputs(at::TensorList inputs, at::IntArrayRef shape) {
  ChainInputs<Index> result{};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (chain_input(inputs[i], shape, result.each[i])) continue;
    result.copies.push_back(inputs[i].expand(shape).contiguous());
    chain_input(result.copies.back(), shape, result.each[i]);
  }
  return result;
}

}  // namespace tos
