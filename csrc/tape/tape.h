#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tos::tape {

// A result of a functional call as recorded. Each replay moves the fresh result's bytes into `storage`, so
// that `tensor` and every view of it stay valid.
struct Result {
  at::Tensor tensor;
  c10::Storage storage;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  size_t nbytes = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  size_t sharing = 0;  // results of the same call that lie in this storage
  bool first = false;  // whether this is the first of them: bytes move once a storage
};

struct Instruction {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;
  std::vector<c10::IValue> args;
  std::vector<Result> results;        // of a functional call; empty when the call writes into its arguments
  std::vector<c10::Storage> supply;   // storages without a slot that get bytes before this call
  std::vector<c10::Storage> release;  // storages whose bytes nobody reads after this call
  std::vector<c10::Storage> poison;   // slots that nobody reads after this call; filled with 0xFF in tests
};

// From the first call that touches a storage to the last one.
struct Interval {
  size_t first;
  size_t last;
  size_t nbytes;
  bool functional;  // swapped in by every replay; else written in place, and so fit for a slot
  uintptr_t storage;
};

// What a replay came to. `call` is the place of the call that diverged.
struct Outcome {
  bool diverged = false;
  size_t call = 0;
  std::string what;
};

// Where a storage lies within a block.
struct Placement {
  size_t interval;
  size_t offset;
};

// Where a tape's storages get their bytes. Numbers are places in `Tape::intervals()`.
struct Layout {
  std::vector<Placement> slots;  // written in place, within a block
  std::vector<size_t>
      supplied;  // written in place, in bytes of their own that the first call finds allocated
  std::vector<size_t> released;  // freed after their last call: made anew, or supplied
  std::vector<size_t> poisoned;  // slots to fill with 0xFF after their last call
};

// A recorded list of ATen calls with fixed tensors. Not for two threads at once: `replay` refuses that.
//
// Bytes that a replay wrote are valid until the next replay, and no longer than until their last reader when
// `plan` placed or released them. Who wants a result afterwards keeps its storage out of `plan` and copies
// it, or has it supplied and takes the bytes with `give`.
class Tape {
 public:
  // Notes tensors whose storages were made during the recording.
  void own(const std::vector<at::Tensor>& tensors);

  // Appends a call. `results` is empty when the call writes into its arguments.
  void add(c10::OperatorHandle op, std::vector<c10::IValue> args, const std::vector<at::Tensor>& results);

  // Whether no storage was resized after the call that made it.
  bool settled() const;

  // The tape's own storages that a call touches, in order of their first call.
  std::vector<Interval> intervals() const;

  // Moves storages into `block` and has others freed after their last reader; once a tape. The bytes that
  // these hold are gone afterwards; what is supplied and not released keeps them until the next replay.
  void plan(const at::Tensor& block, const Layout& layout);

  // Runs every call. Throws what a call throws; after that, or after a divergence, the tape is retired.
  Outcome replay();

  // Drops calls, tensors and blocks.
  void close();

  size_t size() const { return program_.size(); }
  std::string name(size_t call) const;
  size_t position() const { return position_; }
  const std::string& retired() const { return retired_; }

 private:
  std::vector<Instruction> program_;
  std::unordered_map<c10::StorageImpl*, std::pair<c10::Storage, size_t>> own_;  // with the bytes when made
  std::vector<at::Tensor> written_;  // tensors of others that calls say they write into
  std::string retired_;
  size_t position_ = 0;
  bool planned_ = false;
  std::atomic<bool> running_{false};
};

// Key of a tensor's storage, 0 for a tensor without one (opaque, or undefined).
uintptr_t storage_key(const at::Tensor& tensor);

// How many references a tensor's storage has.
size_t storage_uses(const at::Tensor& tensor);

// Frees a storage's bytes. Where torch can take that back, every access throws until `fill_bytes` gives
// others.
void free_bytes(const c10::Storage& storage);
void fill_bytes(const c10::Storage& storage, at::DataPtr&& bytes);

// Moves a tensor's storage, one that no tape knows by an interval, to a slot of a block.
void place(const at::Tensor& tensor, const at::Tensor& block, size_t offset);

// Tensors of the same form that own the bytes which lay behind these, each of which has a storage of its own.
// These have no bytes from then on, until somebody fills their storages again.
std::vector<at::Tensor> give(const std::vector<at::Tensor>& results);

// The dispatch keys a replay works with, whatever the caller's modes are: no autograd, autocast, Python or
// functorch, and nothing that a caller included.
c10::DispatchKeySet included_keys();
c10::DispatchKeySet excluded_keys();

// Calls `visit` on every tensor of an argument.
template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) each_tensor(item, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) each_tensor(item, visit);
  }
}

}  // namespace tos::tape
