#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tos::tape {

// Numbers that are `base + slope * by` in a run that has grown by `by`.
struct Numbers {
  enum class Kind { kInt, kList, kTensor };

  size_t place = 0;  // of the argument
  Kind kind = Kind::kInt;
  std::vector<int64_t> base;
  std::vector<int64_t> slope;
};

// Tensors that a run has in slots.
struct Tensors {
  size_t place = 0;  // of the argument
  bool list = false;
  std::vector<size_t> slots;
};

// What the dims of a slot must be.
struct Form {
  size_t slot = 0;
  std::vector<int64_t> base;
  std::vector<int64_t> slope;
};

struct GrowingCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;  // nothing where tensors or numbers of the run go
  std::vector<Tensors> tensors;
  std::vector<Numbers> numbers;
  std::vector<int64_t> results;  // slots, in order; -1 for a result that is no new tensor
  std::vector<Form> forms;
  std::vector<size_t> release;  // slots that nobody reads after this call
};

// A list of ATen calls on tensors of a run, whose sizes grow by equal amounts: nothing of it stays, unlike a
// tape's. It never changes after `finish`, so that several threads may run it at once.
class Strip {
 public:
  // Slots from 0 on take what a run is given.
  explicit Strip(size_t inputs) : inputs_(inputs), slots_(inputs) {}

  void add(GrowingCall call);

  // Has the slots given back that are named, and the others released after their last reader.
  void finish(std::vector<size_t> wanted);

  // Makes every call. Gives -1, or the slot whose dims are other ones than expected, and then no results.
  int64_t run(std::vector<at::Tensor> inputs, int64_t by, std::vector<at::Tensor>& results) const;

  size_t size() const { return calls_.size(); }

 private:
  size_t inputs_;
  size_t slots_;
  std::vector<GrowingCall> calls_;
  std::vector<size_t> wanted_;
};

}  // namespace tos::tape
