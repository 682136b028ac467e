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
  std::vector<c10::Storage> release;  // own functional storages that nobody reads after this call
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

// A recorded list of ATen calls with fixed tensors. Not for two threads at once: `replay` refuses that.
//
// Bytes that a replay wrote are valid until the next replay, and no longer than until their last reader when
// `plan` placed or released them. Who wants a result afterwards keeps its storage out of `plan`, and copies
// it.
class Tape {
 public:
  // Notes tensors whose storages were made during the recording.
  void own(const std::vector<at::Tensor>& made);

  // Appends a call. `results` is empty when the call writes into its arguments.
  void add(c10::OperatorHandle op, std::vector<c10::IValue> args, const std::vector<at::Tensor>& results);

  // Whether no storage was resized after the call that made it.
  bool settled() const;

  // The tape's own storages that a call touches, in order of their first call.
  std::vector<Interval> intervals() const;

  // Moves storages into `block` and has others freed after their last reader; once a tape. Numbers are places
  // in `intervals()`. The bytes they hold are gone afterwards.
  void plan(const at::Tensor& block, const std::vector<Placement>& slots, const std::vector<size_t>& released,
            bool poison);

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
