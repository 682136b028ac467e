// Calls whose sizes grow from run to run, made in order without Python.
#include "tape/strip.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "tape/tape.h"

namespace tos::tape {

namespace {

int64_t at(const std::vector<int64_t>& base, const std::vector<int64_t>& slope, size_t i, int64_t by) {
  return base[i] + slope[i] * by;
}

c10::IValue value_of(const Numbers& numbers, int64_t by) {
  if (numbers.kind == Numbers::Kind::kInt) return at(numbers.base, numbers.slope, 0, by);
  if (numbers.kind == Numbers::Kind::kTensor) {
    at::Tensor number = c10::scalar_to_tensor(at(numbers.base, numbers.slope, 0, by));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }
  c10::List<int64_t> list;
  list.reserve(numbers.base.size());
  for (size_t i = 0; i < numbers.base.size(); ++i) list.push_back(at(numbers.base, numbers.slope, i, by));
  return list;
}

bool fits(const Form& form, const at::Tensor& tensor, int64_t by) {
  const at::IntArrayRef sizes = tensor.sizes();
  if (sizes.size() != form.base.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != at(form.base, form.slope, i, by)) return false;
  }
  return true;
}

}  // namespace

void Strip::add(GrowingCall call) {
  const size_t arguments = call.op.schema().arguments().size();
  TORCH_CHECK(call.args.size() == arguments, "a call has ", arguments, " arguments");
  for (const Tensors& tensors : call.tensors) {
    TORCH_CHECK(tensors.place < arguments && (tensors.list || tensors.slots.size() == 1),
                "tensors of no argument");
    for (const size_t slot : tensors.slots) TORCH_CHECK(slot < slots_, "slot ", slot, " is not made yet");
  }
  for (const Numbers& numbers : call.numbers) {
    TORCH_CHECK(numbers.place < arguments && numbers.base.size() == numbers.slope.size(),
                "numbers of no argument");
    TORCH_CHECK(numbers.kind == Numbers::Kind::kList || numbers.base.size() == 1, "one number is one");
  }
  for (const int64_t slot : call.results) {
    if (slot >= 0) slots_ = std::max(slots_, static_cast<size_t>(slot) + 1);
  }
  for (const Form& form : call.forms) {
    TORCH_CHECK(form.slot < slots_ && form.base.size() == form.slope.size(), "a form of no slot");
  }
  calls_.push_back(std::move(call));
}

void Strip::finish(std::vector<size_t> wanted) {
  for (const size_t slot : wanted) TORCH_CHECK(slot < slots_, "slot ", slot, " is not made");
  wanted_ = std::move(wanted);
  std::vector<bool> done(slots_, false);
  for (const size_t slot : wanted_) done[slot] = true;
  for (size_t i = calls_.size(); i-- > 0;) {
    GrowingCall& call = calls_[i];
    const auto last = [&](size_t slot) {
      if (!done[slot]) call.release.push_back(slot);
      done[slot] = true;
    };
    for (const Tensors& tensors : call.tensors) {
      for (const size_t slot : tensors.slots) last(slot);
    }
    for (const int64_t slot : call.results) {
      if (slot >= 0) last(static_cast<size_t>(slot));
    }
  }
}

int64_t Strip::run(std::vector<at::Tensor> inputs, int64_t by, std::vector<at::Tensor>& results) const {
  TORCH_CHECK(inputs.size() == inputs_, "a run is given ", inputs_, " tensors, not ", inputs.size());
  const c10::impl::ForceDispatchKeyGuard keys(included_keys(), excluded_keys());
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> slots = std::move(inputs);
  slots.resize(slots_);
  torch::jit::Stack stack;
  for (const GrowingCall& call : calls_) {
    stack.assign(call.args.begin(), call.args.end());
    for (const Tensors& tensors : call.tensors) {
      if (tensors.list) {
        c10::List<at::Tensor> list;
        list.reserve(tensors.slots.size());
        for (const size_t slot : tensors.slots) list.push_back(slots[slot]);
        stack[tensors.place] = std::move(list);
      } else {
        stack[tensors.place] = slots[tensors.slots[0]];
      }
    }
    for (const Numbers& numbers : call.numbers) stack[numbers.place] = value_of(numbers, by);
    call.op.callBoxed(stack);
    size_t count = 0;
    const auto take = [&](const at::Tensor& result) {
      TORCH_CHECK(count < call.results.size(), "a call gave more results than it was seen to give");
      const int64_t slot = call.results[count++];
      if (slot >= 0) slots[static_cast<size_t>(slot)] = result;
    };
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) {
        take(value.toTensor());
      } else if (value.isList()) {
        for (const c10::IValue& item : value.toListRef()) take(item.toTensor());
      }
    }
    TORCH_CHECK(count == call.results.size(), "a call gave fewer results than it was seen to give");
    stack.clear();
    for (const Form& form : call.forms) {
      if (!fits(form, slots[form.slot], by)) return static_cast<int64_t>(form.slot);
    }
    for (const size_t slot : call.release) slots[slot] = at::Tensor();
  }
  results.reserve(wanted_.size());
  for (const size_t slot : wanted_) results.push_back(slots[slot]);
  return -1;
}

}  // namespace tos::tape
