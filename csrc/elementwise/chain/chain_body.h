// Chains of elementwise steps, a block of elements at a time; see chain_rows.h, chain_math.h and
// row_vectors.h.
#include "elementwise/chain/chain_math.h"

namespace {

// A register of a block: elements of the type, or a vector of one float for all of them.
struct ChainOperand {
  const void* at;
  bool single;
};

struct ChainBound {
  float each[kChainLanes];

  constexpr explicit ChainBound(float value) : each{} {
    for (float& one : each) one = value;
  }
};

constexpr ChainBound kLeast(-INFINITY), kMost(INFINITY);

template <Real kType>
TOS_INLINE Floats chain_taken(const ChainOperand& operand, int64_t i, const Floats& single) {
  return operand.single ? single : load<Floats, kType>(operand.at, i);
}

TOS_INLINE Floats chain_single(const ChainOperand& operand) {
  return operand.single ? read<Floats>(operand.at, 0, 4) : Floats{};
}

// `count` is a multiple of the width of vectors. `out` may lie where an operand lies. `floats` has as many.
using ChainStep = void (*)(int64_t count, const ChainOperand* operands, void* out, float* floats);

template <Real kType, ChainCode kCode>
void chain_step(int64_t count, const ChainOperand* operands, void* out, float* floats) {
  constexpr int kTakes = chain_operands(kCode);
  constexpr int64_t kStep = kWidthOf<Floats>;
  const ChainOperand a = operands[0], b = operands[1], c = operands[2];
  if constexpr (kHasBlockMath<kCode>) {
    if (!a.single && has_block_math<kCode>()) {
      if constexpr (kType == Real::kFloat) {
        block_math<kCode>(static_cast<const float*>(a.at), count, static_cast<float*>(out));
      } else {
        for (int64_t i = 0; i < count; i += kStep) write(floats, i, 4, load<Floats, kType>(a.at, i));
        block_math<kCode>(floats, count, floats);
        for (int64_t i = 0; i < count; i += kStep) store<kType>(out, i, read<Floats>(floats, i, 4));
      }
      return;
    }
  }
  const Floats x = chain_single(a), y = chain_single(b), z = chain_single(c);
  for (int64_t i = 0; i < count; i += kStep) {
    const Floats first = chain_taken<kType>(a, i, x);
    const Floats second = kTakes > 1 ? chain_taken<kType>(b, i, y) : y;
    const Floats third = kTakes > 2 ? chain_taken<kType>(c, i, z) : z;
    store<kType>(out, i, chain_of<kType, kCode>(first, second, third));
  }
}

template <Real kType, int... kCodes>
struct ChainSteps {
  static constexpr ChainStep kEach[] = {chain_step<kType, static_cast<ChainCode>(kCodes)>...};
};

template <Real kType, int... kCodes>
constexpr ChainStep chain_step_of(int code, std::integer_sequence<int, kCodes...>) {
  return ChainSteps<kType, kCodes...>::kEach[code];
}

template <Real kType>
class ChainBlock {
 public:
  ChainBlock(const ChainJob& job, float* scratch) : job_(job), slots_(scratch) {
    floats_ = scratch + job.slots.count * kChainBlock;
    lines_ = floats_ + kChainBlock;
    const ChainProgram& program = *job.program;
    for (int i = 0; i < program.constants; ++i) {
      place_[program.inputs + i] = spread(program.inputs + i, program.constant[i]);
    }
    for (int i = 0; i < program.inputs; ++i) {
      const ChainInput<int64_t>& input = job.inputs[i];
      if (input.single()) place_[i] = spread(i, load<float, kType>(input.data, 0));
    }
  }

  void run(int64_t begin, int64_t count) {
    const ChainProgram& program = *job_.program;
    constexpr int64_t kStep = kWidthOf<Floats>;
    const int64_t padded = (count + kStep - 1) / kStep * kStep;
    for (int i = 0; i < program.inputs; ++i) {
      if (!job_.inputs[i].single()) place_[i] = bring(i, begin, count, padded);
    }
    Element* const result = static_cast<Element*>(job_.out) + begin;
    const void* computed = nullptr;
    for (int row = 0; row < program.rows; ++row) {
      const ChainRow& each = program.row[row];
      ChainOperand operands[3];
      for (int i = 0; i < 3; ++i) operands[i] = operand(each, i);
      const int number = program.inputs + program.constants + row;
      const bool last = row + 1 == program.rows;
      Element* out = last && padded == count ? result : slot(number);
      chain_step_of<kType>(each.code, kCodes)(padded, operands, out, floats_);
      place_[number] = {out, false};
      computed = out;
    }
    if (padded != count) std::memcpy(result, computed, count * sizeof(Element));
  }

 private:
  using Element = std::conditional_t<kType == Real::kFloat, float, uint16_t>;
  static constexpr auto kCodes = std::make_integer_sequence<int, static_cast<int>(ChainCode::kCount)>{};

  const ChainJob& job_;
  float* slots_;
  float* floats_;
  float* lines_;
  ChainOperand place_[kChainRegisters];

  Element* slot(int number) const {
    return reinterpret_cast<Element*>(slots_ + job_.slots.of[number] * kChainBlock);
  }

  ChainOperand spread(int line, float value) const {
    float* at = lines_ + line * kChainLanes;
    for (int64_t i = 0; i < kWidthOf<Floats>; ++i) at[i] = value;
    return {at, true};
  }

  ChainOperand operand(const ChainRow& row, int i) const {
    if (row.operands[i] >= 0) return place_[row.operands[i]];
    // A bound that is absent does not bind.
    return {i == 1 ? kLeast.each : kMost.each, true};
  }

  // Elements of an input, with anything behind them up to whole vectors.
  ChainOperand bring(int number, int64_t begin, int64_t count, int64_t padded) {
    const ChainInput<int64_t>& input = job_.inputs[number];
    const Element* data = static_cast<const Element*>(input.data);
    int64_t inner = begin % input.size[0], at = input.place(begin);
    const bool whole = inner + count <= input.size[0];
    if (whole && input.stride[0] == 1 && padded == count) return {data + at, false};
    if (whole && input.stride[0] == 0) return spread(number, load<float, kType>(data, at));
    Element* to = slot(number);
    int64_t done = 0;
    while (done < count) {
      const int64_t run = std::min(input.size[0] - inner, count - done);
      copy(data + at, input.stride[0], run, to + done);
      done += run;
      inner = 0;
      if (done < count) at = input.place(begin + done);
    }
    for (int64_t i = count; i < padded; ++i) to[i] = 0;
    return {to, false};
  }

  static void copy(const Element* from, int64_t stride, int64_t count, Element* to) {
    if (stride == 1) {
      std::memcpy(to, from, count * sizeof(Element));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
    }
  }
};

// Where an input changes its row seldom enough blocks may as well end there.
inline int64_t chain_row(const ChainJob& job) {
  int64_t row = 0;
  for (int i = 0; i < job.program->inputs; ++i) {
    const ChainInput<int64_t>& input = job.inputs[i];
    if (input.dims > 1 && (row == 0 || input.size[0] < row)) row = input.size[0];
  }
  return row >= kChainBlock / 4 ? row : 0;
}

template <Real kType>
void chain_of_type(const ChainJob& job, int64_t begin, int64_t end, float* scratch) {
  ChainBlock<kType> block(job, scratch);
  const int64_t row = chain_row(job);
  while (begin < end) {
    int64_t count = std::min(kChainBlock, end - begin);
    if (row > 0) count = std::min(count, row - begin % row);
    // Whole vectors are read and written where they are; what is left over goes through copies.
    constexpr int64_t kStep = kWidthOf<Floats>;
    if (kType == Real::kFloat && count > kStep) count -= count % kStep;
    block.run(begin, count);
    begin += count;
  }
}

void chain(Real type, const ChainJob& job, int64_t begin, int64_t end, float* scratch) {
  constexpr decltype(&chain_of_type<Real::kFloat>) kByType[] = {
      chain_of_type<Real::kFloat>, chain_of_type<Real::kHalf>, chain_of_type<Real::kBFloat16>};
  kByType[static_cast<int>(type)](job, begin, end, scratch);
}

}  // namespace
