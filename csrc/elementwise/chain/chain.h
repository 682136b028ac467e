#pragma once

#include <cstdint>

#include "core/portable.h"

// Chains of elementwise steps that one pass computes, as any device is given them.
namespace tos {

constexpr int kChainInputs = 8;
constexpr int kChainConstants = 16;
constexpr int kChainRows = 32;
constexpr int kChainRegisters = kChainInputs + kChainConstants + kChainRows;
// Dimensions of an input where those that lie behind one another count as one.
constexpr int kChainDims = 6;

// What a row computes; ops/native/chain.py names the same numbers.
enum class ChainCode : int {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,  // like kMax NaN where an operand is
  kMax,
  kPow,
  kNeg,
  kAbs,
  kReciprocal,
  kSqrt,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kRelu,
  kFloor,
  kCeil,
  kRound,  // halves to the even one
  kSin,
  kCos,
  kSquare,
  kCube,  // rounded as torch's third power is on the device
  kSoftplus,
  kSoftsign,
  kMish,
  kClip,         // a, low, high; a bound may be absent, and wins as `high` where they cross
  kLeakyRelu,    // a, alpha
  kElu,          // a, alpha
  kHardSigmoid,  // a, alpha, beta
  kHardSwish,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kCount
};

// Operands that a code takes; of kClip those behind the first may be absent.
TOS_PORTABLE constexpr int chain_operands(ChainCode code) {
  switch (code) {
    case ChainCode::kAdd:
    case ChainCode::kSub:
    case ChainCode::kMul:
    case ChainCode::kDiv:
    case ChainCode::kMin:
    case ChainCode::kMax:
    case ChainCode::kPow:
    case ChainCode::kLeakyRelu:
    case ChainCode::kElu:
      return 2;
    case ChainCode::kClip:
    case ChainCode::kHardSigmoid:
      return 3;
    default:
      return 1;
  }
}

// Registers are numbered: inputs, constants, results of the rows in order.
struct ChainRow {
  int8_t code;
  int8_t operands[3];  // registers, -1 for none
};

// The last row is the result. The result of every row is rounded to the type of the inputs.
struct ChainProgram {
  int inputs;
  int constants;
  int rows;
  float constant[kChainConstants];
  ChainRow row[kChainRows];
};

// Which memory a register has while a block of elements goes through the rows; constants need none.
struct ChainSlots {
  int count;
  int8_t of[kChainRegisters];
};

// Registers that are read behind one another share a slot: a row may write where it reads.
inline ChainSlots chain_slots(const ChainProgram& program) {
  const int first = program.inputs + program.constants;
  int last_read[kChainRegisters];
  for (int i = 0; i < first; ++i) last_read[i] = -1;
  for (int row = 0; row < program.rows; ++row) {
    last_read[first + row] = row;
    for (const int8_t operand : program.row[row].operands) {
      if (operand >= 0) last_read[operand] = row;
    }
  }
  ChainSlots slots{};
  int8_t free[kChainRegisters] = {};
  int spare = 0;
  const auto take = [&](int number) {
    slots.of[number] = spare > 0 ? free[--spare] : static_cast<int8_t>(slots.count++);
  };
  for (int i = 0; i < program.inputs; ++i) take(i);
  for (int row = 0; row < program.rows; ++row) {
    for (int i = 0; i < first + row; ++i) {
      const bool held = i < program.inputs || i >= first;
      if (held && last_read[i] == row) free[spare++] = slots.of[i];
    }
    take(first + row);
    // What nobody reads gives its memory back at once.
    if (last_read[first + row] == row) free[spare++] = slots.of[first + row];
  }
  return slots;
}

// Where an input lies, in elements; the first dimension is the innermost one.
template <class Index>
struct ChainInput {
  const void* data;
  int dims;
  Index size[kChainDims];
  Index stride[kChainDims];

  // One element behind the other.
  TOS_PORTABLE bool flat() const { return dims == 1 && stride[0] == 1; }
  TOS_PORTABLE bool single() const { return dims == 1 && stride[0] == 0; }

  // Of the element of the result of that number.
  TOS_PORTABLE Index place(Index number) const {
    Index at = 0;
    for (int d = 0; d + 1 < dims; ++d) {
      at += number % size[d] * stride[d];
      number /= size[d];
    }
    return at + number * stride[dims - 1];
  }
};

}  // namespace tos
