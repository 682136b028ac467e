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
  ChainProgram made{};
  made.inputs = static_cast<int>(inputs);
  made.constants = static_cast<int>(constants.size());
  made.rows = static_cast<int>(rows);
  for (int i = 0; i < made.constants; ++i) made.constant[i] = static_cast<float>(constants[i]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* given = program.data() + row * kEach;
    TORCH_CHECK_VALUE(given[0] >= 0 && given[0] < static_cast<int64_t>(ChainCode::kCount),
                      "elementwise_chain: row ", row, ": ", given[0], " is no number of a code");
    made.row[row].code = static_cast<int8_t>(given[0]);
    const ChainCode code = static_cast<ChainCode>(given[0]);
    const int takes = chain_operands(code);
    const int64_t known = inputs + made.constants + row;
    for (int i = 0; i < 3; ++i) {
      const int64_t operand = given[1 + i];
      const bool absent = i >= takes || (code == ChainCode::kClip && i > 0 && operand == -1);
      if (absent) {
        TORCH_CHECK_VALUE(operand == -1, "elementwise_chain: row ", row, ": code ", given[0], " takes ",
                          takes, " operands, not ", operand, " as well");
      } else {
        TORCH_CHECK_VALUE(operand >= 0 && operand < known, "elementwise_chain: row ", row, " reads register ",
                          operand, " of ", known);
      }
      made.row[row].operands[i] = static_cast<int8_t>(operand);
    }
  }
  return made;
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
bool chain_input(const at::Tensor& tensor, at::IntArrayRef shape, ChainInput<Index>& made) {
  made.data = tensor.const_data_ptr();
  made.dims = 0;
  const int64_t missing = static_cast<int64_t>(shape.size()) - tensor.dim();
  for (int64_t axis = static_cast<int64_t>(shape.size()) - 1; axis >= 0; --axis) {
    const int64_t size = shape[axis];
    if (size == 1) continue;
    const int64_t own = axis - missing;
    const int64_t stride = own < 0 || tensor.size(own) == 1 ? 0 : tensor.stride(own);
    const int last = made.dims - 1;
    if (last >= 0 && stride == static_cast<int64_t>(made.stride[last]) * made.size[last]) {
      made.size[last] *= static_cast<Index>(size);
    } else if (made.dims == kChainDims) {
      return false;
    } else {
      made.size[made.dims] = static_cast<Index>(size);
      made.stride[made.dims++] = static_cast<Index>(stride);
    }
  }
  if (made.dims == 0) {
    made.dims = 1;
    made.size[0] = made.stride[0] = 1;
  }
  return true;
}

template <class Index>
ChainInputs<Index> chain_inputs(at::TensorList inputs, at::IntArrayRef shape) {
  ChainInputs<Index> made{};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (chain_input(inputs[i], shape, made.each[i])) continue;
    made.copies.push_back(inputs[i].expand(shape).contiguous());
    chain_input(made.copies.back(), shape, made.each[i]);
  }
  return made;
}

}  // namespace tos
