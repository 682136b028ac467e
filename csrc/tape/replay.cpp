// The replay loop: boxed calls in order, without Python.
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

#include "tape/tape.h"

namespace tos::tape {

namespace {

// Marks a tape as running for as long as it lives.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& running) : running_(running) {
    TORCH_CHECK(!running_.exchange(true), "this tape is being replayed by another thread");
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { running_.store(false); }

 private:
  std::atomic<bool>& running_;
};

// Whether nothing but the stack holds a tensor, and the Python object that an op written in Python made of
// it.
bool held_once(const at::Tensor& tensor) {
  const auto& slot = *tensor.unsafeGetTensorImpl()->pyobj_slot();
  if (slot.load_pyobj() == nullptr) return tensor.use_count() == 1;
  return tensor.use_count() == 2 && slot.has_unique_reference();
}

// What differs from the recorded result, nullptr when nothing does.
const char* difference(const Result& want, const at::Tensor& got) {
  if (got.defined() != want.tensor.defined()) return "whether there is a result";
  if (!got.defined()) return nullptr;
  if (!got.has_storage()) return "the layout";
  if (got.sizes() != want.sizes) return "the shape";
  if (got.strides() != want.strides) return "the strides";
  if (got.scalar_type() != want.dtype) return "the dtype";
  if (got.storage_offset() != want.offset) return "the storage offset";
  if (got.storage().nbytes() != want.nbytes) return "the bytes";
  if (got.is_conj() != want.tensor.is_conj() || got.is_neg() != want.tensor.is_neg()) return "a lazy bit";
  // What somebody else holds too would lose its bytes to this tape.
  if (!held_once(got) || storage_uses(got) != want.sharing) return "who owns the bytes";
  return nullptr;
}

const char* adopt(std::vector<Result>& results, const torch::jit::Stack& stack) {
  const size_t count = results.size();
  size_t at = 0;
  const char* differs = nullptr;
  const auto check = [&](const at::Tensor& got) {
    if (differs == nullptr) differs = at < count ? difference(results[at], got) : "the number of results";
    ++at;
  };
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      check(value.toTensor());
    } else if (value.isNone()) {
      check(at::Tensor());
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) check(item.toTensor());
    }
  }
  if (differs == nullptr && at != count) differs = "the number of results";
  if (differs != nullptr) return differs;
  at = 0;
  const auto take = [&](const at::Tensor& got) {
    const Result& result = results[at++];
    if (!result.first) return;
    c10::StorageImpl* fresh = got.storage().unsafeGetStorageImpl();
    fill_bytes(result.storage, fresh->set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU))));
  };
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      take(value.toTensor());
    } else if (value.isNone()) {
      ++at;
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) take(item.toTensor());
    }
  }
  return nullptr;
}

void fill(const c10::Storage& storage) {
  if (storage.data() != nullptr) std::memset(storage.mutable_data(), 0xFF, storage.nbytes());
}

}  // namespace

c10::DispatchKeySet included_keys() { return c10::DispatchKeySet(c10::DispatchKey::BackendSelect); }

c10::DispatchKeySet excluded_keys() {
  static const c10::DispatchKeySet keys = [] {
    using c10::DispatchKey;
    return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
           c10::DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot, DispatchKey::PreDispatch,
                                DispatchKey::PythonDispatcher, DispatchKey::Functionalize,
                                DispatchKey::FuncTorchDynamicLayerFrontMode,
                                DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::FuncTorchGradWrapper,
                                DispatchKey::FuncTorchVmapMode, DispatchKey::FuncTorchBatched,
                                DispatchKey::Tracer});
  }();
  return keys;
}

Outcome Tape::replay() {
  const Turn turn(running_);
  TORCH_CHECK(retired_.empty(), "this tape is retired: ", retired_);
  const c10::impl::ForceDispatchKeyGuard keys(included_keys(), excluded_keys());
  const c10::AutoGradMode no_grad(false);
  // Only then are calls shown to a profiler, which costs as much as finding their kernels.
  const bool watched = at::hasGlobalCallbacks() || at::hasThreadLocalCallbacks();
  // A call that throws leaves this behind; the end of a good replay takes it back.
  retired_ = "a call failed in a replay";
  torch::jit::Stack stack;
  for (position_ = 0; position_ < program_.size(); ++position_) {
    Instruction& call = program_[position_];
    for (const c10::Storage& storage : call.supply) {
      fill_bytes(storage, c10::GetCPUAllocator()->allocate(storage.nbytes()));
    }
    stack.assign(call.args.begin(), call.args.end());
    if (watched) {
      call.op.callBoxed(stack);
    } else {
      call.op.redispatchBoxed(call.keys, &stack);
    }
    if (!call.results.empty()) {
      if (const char* what = adopt(call.results, stack)) {
        retired_ = "a replay diverged";
        return {true, position_, what};
      }
    }
    stack.clear();
    for (const c10::Storage& slot : call.poison) fill(slot);
    for (const c10::Storage& storage : call.release) free_bytes(storage);
  }
  // Below autograd nobody counts writes, and a graph that saved one of these tensors must notice.
  for (const at::Tensor& tensor : written_) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
  retired_.clear();
  return {};
}

}  // namespace tos::tape
