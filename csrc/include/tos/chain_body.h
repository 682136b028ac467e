// Chains of elementwise steps, a block of elements at a time; see chain_rows.h, chain_math.h and
// row_vectors.h.
#include "tos/chain_math.h"

namespace {

// A register of a block: one vector after the other, or one vector for all of them.
struct ChainOperand {
  const float* at;
  int64_t step;  // floats from vector to vector
};

struct ChainBound {
  float each[kChainLanes];

  constexpr explicit ChainBound(float value) : each{} {
    for (float& one : each) one = value;
  }
};

constexpr ChainBound kLeast(-INFINITY), kMost(INFINITY);

// `count` is a multiple of the width of vectors. `out` may lie where an operand lies.
using ChainStep = void (*)(int64_t count, const ChainOperand* operands, float* out);

template <Real kType, ChainCode kCode>
void chain_step(int64_t count, const ChainOperand* operands, float* out) {
  constexpr int kTakes = chain_operands(kCode);
  const ChainOperand& a = operands[0];
  if constexpr (kHasBlockMath<kCode>) {
    if (a.step != 0 && block_math<kCode>(a.at, count, out)) {
      if constexpr (kType == Real::kFloat) return;
      for (int64_t i = 0; i < count; i += kWidthOf<Floats>) {
        write(out, i, 4, rounded<kType>(read<Floats>(out, i, 4)));
      }
      return;
    }
  }
  const float *from_a = a.at, *from_b = operands[1].at, *from_c = operands[2].at;
  for (int64_t i = 0; i < count; i += kWidthOf<Floats>) {
    const Floats x = read<Floats>(from_a, 0, 4);
    Floats y{}, z{};
    if constexpr (kTakes > 1) y = read<Floats>(from_b, 0, 4);
    if constexpr (kTakes > 2) z = read<Floats>(from_c, 0, 4);
    write(out, i, 4, rounded<kType>(chain_of<kType, kCode>(x, y, z)));
    from_a += a.step;
    if constexpr (kTakes > 1) from_b += operands[1].step;
    if constexpr (kTakes > 2) from_c += operands[2].step;
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
    lines_ = scratch + job.slots.count * kChainBlock;
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
    const bool direct = kType == Real::kFloat && padded == count;
    const float* made = nullptr;
    for (int row = 0; row < program.rows; ++row) {
      const ChainRow& each = program.row[row];
      ChainOperand operands[3];
      for (int i = 0; i < 3; ++i) operands[i] = operand(each, i);
      const int number = program.inputs + program.constants + row;
      float* out = slot(number);
      if (direct && row + 1 == program.rows) out = static_cast<float*>(job_.out) + begin;
      chain_step_of<kType>(each.code, kCodes)(padded, operands, out);
      place_[number] = {out, kStep};
      made = out;
    }
    if (!direct) keep(made, begin, count);
  }

 private:
  static constexpr auto kCodes = std::make_integer_sequence<int, static_cast<int>(ChainCode::kCount)>{};

  const ChainJob& job_;
  float* slots_;
  float* lines_;
  ChainOperand place_[kChainRegisters];

  float* slot(int number) const { return slots_ + job_.slots.of[number] * kChainBlock; }

  ChainOperand spread(int line, float value) const {
    float* at = lines_ + line * kChainLanes;
    for (int64_t i = 0; i < kWidthOf<Floats>; ++i) at[i] = value;
    return {at, 0};
  }

  ChainOperand operand(const ChainRow& row, int i) const {
    if (row.operands[i] >= 0) return place_[row.operands[i]];
    // A bound that is absent does not bind.
    return {i == 1 ? kLeast.each : kMost.each, 0};
  }

  // Elements of an input as floats, with anything behind them up to whole vectors.
  ChainOperand bring(int number, int64_t begin, int64_t count, int64_t padded) {
    constexpr int64_t kStep = kWidthOf<Floats>;
    const ChainInput<int64_t>& input = job_.inputs[number];
    float* to = slot(number);
    int64_t inner = begin % input.size[0], at = input.place(begin);
    const bool whole = inner + count <= input.size[0];
    if (whole && input.stride[0] == 1 && kType == Real::kFloat && padded == count) {
      return {static_cast<const float*>(input.data) + at, kStep};
    }
    if (whole && input.stride[0] == 0) {
      float* line = lines_ + number * kChainLanes;
      const float value = load<float, kType>(input.data, at);
      for (int64_t i = 0; i < kStep; ++i) line[i] = value;
      return {line, 0};
    }
    int64_t done = 0;
    while (done < count) {
      const int64_t run = std::min(input.size[0] - inner, count - done);
      copy(input.data, at, input.stride[0], run, to + done);
      done += run;
      inner = 0;
      if (done < count) at = input.place(begin + done);
    }
    for (int64_t i = count; i < padded; ++i) to[i] = 0.0f;
    return {to, kStep};
  }

  void copy(const void* from, int64_t at, int64_t stride, int64_t count, float* to) const {
    int64_t i = 0;
    if (stride == 1) {
      for (; i + kWidthOf<Floats> <= count; i += kWidthOf<Floats>) {
        write(to, i, 4, load<Floats, kType>(from, at + i));
      }
    }
    if (stride == 0) {
      const float value = load<float, kType>(from, at);
      for (; i < count; ++i) to[i] = value;
    }
    for (; i < count; ++i) to[i] = load<float, kType>(from, at + i * stride);
  }

  void keep(const float* made, int64_t begin, int64_t count) const {
    int64_t i = 0;
    for (; i + kWidthOf<Floats> <= count; i += kWidthOf<Floats>) {
      store<kType>(job_.out, begin + i, read<Floats>(made, i, 4));
    }
    for (; i < count; ++i) store<kType>(job_.out, begin + i, made[i]);
  }
};

// Where an input changes its row often enough blocks may as well end there.
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
