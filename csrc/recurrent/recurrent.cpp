// Layers of LSTM and GRU: all steps of a direction in one call.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "recurrent/steps.h"

namespace tos {

namespace {

// Products of numbers that are worth a thread.
constexpr int64_t kGrain = 1 << 18;

// Rows of all steps from which on a recurrence is packed.
constexpr int64_t kManySteps = 16;

// Number of the attribute: what runs forward, backward, or the first forward and the second backward.
enum Direction : int64_t { kForward, kReverse, kBoth };

// Sizes of a layer, and what all of its directions read and write.
struct Layer {
  int64_t time, ways, batch, hidden, gates;
  int64_t direction;
  const float* inputs;       // [time, batch, ways, gates * hidden]
  const float* recurrences;  // [ways, gates * hidden, hidden]
  const int32_t* lengths;    // [batch] or nullptr
  float* output;             // [time, ways, batch, hidden]
  float* state;              // [ways, batch, hidden]
  float* cell;               // the same, or nullptr
  float clip;

  bool backward(int64_t way) const { return direction == kReverse || (direction == kBoth && way == 1); }
  int64_t length(int64_t row) const {
    return lengths == nullptr ? time : std::clamp<int64_t>(lengths[row], 0, time);
  }
};

bool fits(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.scalar_type() == at::kFloat && tensor.sizes() == sizes;
}

// Calls `body` with each row whose sequence has a step `at`, and with its number. A row has `gates` products.
template <typename Body>
void for_rows(const Layer& layer, int64_t way, int64_t at, const float* products, int64_t gates,
              const Body& body) {
  const int64_t hidden = layer.hidden, width = layer.gates * hidden;
  for (int64_t row = 0; row < layer.batch; ++row) {
    const int64_t length = layer.length(row);
    if (at >= length) continue;
    const int64_t time = layer.backward(way) ? length - 1 - at : at;
    const int64_t place = way * layer.batch + row;
    body(StepRow{layer.inputs + ((time * layer.batch + row) * layer.ways + way) * width,
                 products + row * gates * hidden, layer.state + place * hidden,
                 layer.cell == nullptr ? nullptr : layer.cell + place * hidden,
                 layer.output + (time * layer.ways * layer.batch + place) * hidden, hidden, layer.clip},
         row);
  }
}

// Zeros behind the end of each sequence.
void clear(const Layer& layer, int64_t way) {
  for (int64_t row = 0; row < layer.batch; ++row) {
    for (int64_t time = layer.length(row); time < layer.time; ++time) {
      float* to = layer.output + ((time * layer.ways + way) * layer.batch + row) * layer.hidden;
      std::fill_n(to, layer.hidden, 0.0f);
    }
  }
}

// Checks what both layers are given, and runs `way` for each direction, on a thread of its own.
template <typename Way>
void run(Layer& layer, const at::Tensor& gates, const at::Tensor& recurrence, const at::Tensor& h,
         const std::optional<at::Tensor>& lengths, double clip, at::Tensor& output, at::Tensor& state,
         const Way& way) {
  const at::Tensor inputs = gates.contiguous(), weights = recurrence.contiguous();
  std::optional<at::Tensor> ends;
  if (lengths.has_value()) ends = lengths->contiguous();
  layer.inputs = inputs.const_data_ptr<float>();
  layer.recurrences = weights.const_data_ptr<float>();
  layer.lengths = ends.has_value() ? ends->const_data_ptr<int32_t>() : nullptr;
  state.copy_(h);
  layer.output = output.mutable_data_ptr<float>();
  layer.state = state.mutable_data_ptr<float>();
  layer.clip = static_cast<float>(clip);
  if (state.numel() == 0) return;
  const int64_t products = layer.time * recurrence.numel();
  at::parallel_for(0, layer.ways, products < kGrain ? layer.ways : 1, [&](int64_t begin, int64_t end) {
    for (int64_t each = begin; each < end; ++each) {
      if (layer.lengths != nullptr) clear(layer, each);
      way(each);
    }
  });
}

// Some rows of a recurrence, read as they lie or in panels: those pay where there are enough steps.
class Factor {
 public:
  Factor(const StepKernels& kernels, const Layer& layer, const float* rows, int64_t count)
      : kernels_(kernels), rows_(rows), count_(count), columns_(layer.hidden), batch_(layer.batch) {
    if (layer.time * layer.batch < kManySteps) return;
    const int64_t whole = (count + kernels.panel - 1) / kernels.panel * kernels.panel;
    packed_.resize(static_cast<size_t>(whole * columns_));
    kernels.pack(rows, count, columns_, packed_.data());
  }

  void times(const float* x, float* y) const {
    if (packed_.empty()) {
      kernels_.product(rows_, count_, columns_, x, batch_, y);
    } else {
      kernels_.packed_product(packed_.data(), count_, columns_, x, batch_, y);
    }
  }

 private:
  const StepKernels& kernels_;
  const float* rows_;
  int64_t count_, columns_, batch_;
  std::vector<float> packed_;
};

Layer layer_of(const char* name, int64_t gate_count, const at::Tensor& gates, const at::Tensor& recurrence,
               const at::Tensor& h, const std::optional<at::Tensor>& lengths, int64_t direction) {
  TORCH_CHECK_VALUE(gates.dim() == 3 && h.dim() == 3, name, ": gates and state need three axes");
  TORCH_CHECK_VALUE(direction >= kForward && direction <= kBoth, name, ": direction ", direction,
                    " is no number of one");
  const int64_t ways = direction == kBoth ? 2 : 1, batch = gates.size(1), hidden = h.size(2);
  TORCH_CHECK_VALUE(fits(gates, {gates.size(0), batch, ways * gate_count * hidden}) &&
                        fits(recurrence, {ways, gate_count * hidden, hidden}) &&
                        fits(h, {ways, batch, hidden}),
                    name, ": gates ", gates.sizes(), ", recurrence ", recurrence.sizes(), " and state ",
                    h.sizes(), " are not floats that fit together in ", ways, " direction(s)");
  TORCH_CHECK_VALUE(!lengths.has_value() ||
                        (lengths->scalar_type() == at::kInt && lengths->sizes() == at::IntArrayRef{batch}),
                    name, ": the lengths are not one int32 for each of ", batch, " sequences");
  Layer layer{};
  layer.time = gates.size(0);
  layer.ways = ways;
  layer.batch = batch;
  layer.hidden = hidden;
  layer.gates = gate_count;
  layer.direction = direction;
  return layer;
}

at::Tensor empty_output(const Layer& layer, const at::Tensor& like) {
  return at::empty({layer.time, layer.ways, layer.batch, layer.hidden}, like.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_layer(
    const at::Tensor& gates, const at::Tensor& recurrence, const at::Tensor& h, const at::Tensor& c,
    const std::optional<at::Tensor>& lengths, int64_t direction, double clip, int64_t instructions) {
  Layer layer = layer_of("lstm_layer", 4, gates, recurrence, h, lengths, direction);
  TORCH_CHECK_VALUE(fits(c, h.sizes()), "lstm_layer: the cell ", c.sizes(), " is not as the state ",
                    h.sizes());
  const StepKernels& kernels = steps_for(instructions);
  at::Tensor output = empty_output(layer, gates);
  at::Tensor state = at::empty(h.sizes(), h.options()), cell = at::empty(h.sizes(), h.options());
  cell.copy_(c);
  layer.cell = cell.mutable_data_ptr<float>();
  run(layer, gates, recurrence, h, lengths, clip, output, state, [&](int64_t way) {
    const int64_t hidden = layer.hidden, width = 4 * hidden;
    const Factor recurrence_of(kernels, layer, layer.recurrences + way * width * hidden, width);
    std::vector<float> products(static_cast<size_t>(layer.batch * width));
    for (int64_t at = 0; at < layer.time; ++at) {
      const float* last = layer.state + way * layer.batch * hidden;
      recurrence_of.times(last, products.data());
      for_rows(layer, way, at, products.data(), 4, [&](const StepRow& row, int64_t) { kernels.lstm(row); });
    }
  });
  return {output, state, cell};
}

// The reset gate multiplies the hidden gate's product, or what goes into it.
std::tuple<at::Tensor, at::Tensor> gru_layer(const at::Tensor& gates, const at::Tensor& recurrence,
                                             const at::Tensor& bias, const at::Tensor& h,
                                             const std::optional<at::Tensor>& lengths, int64_t direction,
                                             double clip, bool linear, int64_t instructions) {
  Layer layer = layer_of("gru_layer", 3, gates, recurrence, h, lengths, direction);
  TORCH_CHECK_VALUE(fits(bias, {layer.ways, layer.hidden}), "gru_layer: the hidden gate's bias ",
                    bias.sizes(), " is not one float for each of ", layer.ways, " x ", layer.hidden,
                    " numbers");
  const StepKernels& kernels = steps_for(instructions);
  at::Tensor output = empty_output(layer, gates), state = at::empty(h.sizes(), h.options());
  const at::Tensor dense_bias = bias.contiguous();
  const float* biases = dense_bias.const_data_ptr<float>();
  run(layer, gates, recurrence, h, lengths, clip, output, state, [&](int64_t way) {
    const int64_t hidden = layer.hidden, width = 3 * hidden, batch = layer.batch;
    const float* recurrent = layer.recurrences + way * width * hidden;
    const float* last = layer.state + way * batch * hidden;
    const float* own = biases + way * hidden;
    std::vector<float> products(static_cast<size_t>(batch * width));
    if (linear) {
      const Factor all(kernels, layer, recurrent, width);
      for (int64_t at = 0; at < layer.time; ++at) {
        all.times(last, products.data());
        for_rows(layer, way, at, products.data(), 3,
                 [&](const StepRow& row, int64_t) { kernels.gru_linear(row, own); });
      }
      return;
    }
    const Factor of_gates(kernels, layer, recurrent, 2 * hidden);
    const Factor of_fresh(kernels, layer, recurrent + 2 * hidden * hidden, hidden);
    std::vector<float> reset(static_cast<size_t>(batch * hidden)), fresh(reset.size());
    for (int64_t at = 0; at < layer.time; ++at) {
      of_gates.times(last, products.data());
      for_rows(layer, way, at, products.data(), 2, [&](const StepRow& row, int64_t number) {
        kernels.gru_reset(row, reset.data() + number * hidden);
      });
      of_fresh.times(reset.data(), fresh.data());
      for_rows(layer, way, at, products.data(), 2,
               [&](const StepRow& row, int64_t number) { kernels.gru(row, fresh.data() + number * hidden); });
    }
  });
  return {output, state};
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) {
  m.impl("lstm_layer", &tos::lstm_layer);
  m.impl("gru_layer", &tos::gru_layer);
}
