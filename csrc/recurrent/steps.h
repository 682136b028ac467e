#pragma once

#include <cstdint>

#include "core/instructions.h"

// One step of a recurrent layer, on raw pointers. Each set of instructions has a table of its own; none of
// these functions allocates or throws.
namespace tos {

// What one step of one row reads and writes besides its gates. A gate's numbers lie side by side.
struct StepRow {
  const float* input;    // what the step takes of the sequence: all gates, with biases
  const float* product;  // what it takes of the last output: all gates
  float* state;          // the output: the last one, then this one
  float* cell;           // LSTM alone: the same of the cell
  float* output;         // where this step's output goes as well
  int64_t hidden;
  float clip;  // bound of what goes into a function; infinity for none
};

struct StepKernels {
  // y[b * rows + n] = sum over k of r[n * columns + k] * x[b * columns + k], for `batch` rows of x.
  void (*product)(const float* r, int64_t rows, int64_t columns, const float* x, int64_t batch, float* y);

  // The same with r in panels of `panel` rows, which pays where it is read many times. `packed` has as many
  // rows as whole panels take.
  int panel;
  void (*pack)(const float* r, int64_t rows, int64_t columns, float* packed);
  void (*packed_product)(const float* packed, int64_t rows, int64_t columns, const float* x, int64_t batch,
                         float* y);

  // Gates input, output, forget, cell.
  void (*lstm)(const StepRow& row);

  // Gates update, reset, hidden; the reset gate multiplies the hidden gate's product and `bias`.
  void (*gru_linear)(const StepRow& row, const float* bias);

  // The reset gate times the state, before the hidden gate's product is known.
  void (*gru_reset)(const StepRow& row, float* reset_state);

  // With the hidden gate's product of that, in `fresh`.
  void (*gru)(const StepRow& row, const float* fresh);
};

extern const StepKernels kDefaultSteps;
#ifdef TOS_X86
extern const StepKernels kAvx2Steps;
extern const StepKernels kAvx512Steps;
#endif

// The table for a set of instructions by number: see instructions_for.
inline const StepKernels& steps_for(int64_t instructions) {
  return TOS_SERVING(instructions_for(instructions), kDefaultSteps, kAvx2Steps, kAvx512Steps);
}

}  // namespace tos
