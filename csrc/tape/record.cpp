// What a tape is told while recording, and where its storages are put.
#include <ATen/core/function_schema.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tape/tape.h"

namespace tos::tape {

namespace {

// Has accesses to a storage throw, or not. torch 2.11 cannot take that back, so there nothing is set.
template <typename Storage>
auto guard(Storage& storage, bool on, int) -> decltype(storage.clear_data_ptr_access_error_msg_()) {
  if (on) {
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::nullopt);
  } else {
    storage.clear_data_ptr_access_error_msg_();
  }
}

template <typename Storage>
void guard(Storage&, bool, long) {}

// Freed slot: keeps the block alive for as long as a storage lies in it, whoever holds that storage.
void drop_block(void* context) { delete static_cast<c10::Storage*>(context); }

at::DataPtr slot_of(const at::Tensor& block, size_t offset) {
  char* base = static_cast<char*>(block.mutable_data_ptr());
  return {base + offset, new c10::Storage(block.storage()), &drop_block, block.device()};
}

void check_fits(const at::Tensor& block, size_t offset, size_t nbytes) {
  TORCH_CHECK(block.is_contiguous() && block.device().is_cpu(), "a block is contiguous memory of the CPU");
  TORCH_CHECK(offset <= block.nbytes() && nbytes <= block.nbytes() - offset, "a slot of ", nbytes,
              " bytes at ", offset, " leaves its block of ", block.nbytes());
}

void move_to(const c10::Storage& storage, const at::Tensor& block, size_t offset) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(slot_of(block, offset));
  storage.unsafeGetStorageImpl()->set_resizable(false);
}

// The keys that the dispatcher would come to for these arguments on every replay.
c10::DispatchKeySet keys_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& args) {
  c10::DispatchKeySet keys = included_keys();
  for (const c10::IValue& arg : args) {
    each_tensor(arg, [&](const at::Tensor& t) { keys = keys | t.key_set(); });
  }
  keys = keys - excluded_keys();
  for (const c10::DispatchKey key : keys) {
    // Without a kernel of its own an op falls through BackendSelect; the other keys have real fallbacks.
    const bool skipped = op.hasKernelForDispatchKey(key) ? op.isKernelFallthroughKernel(key)
                                                         : key == c10::DispatchKey::BackendSelect;
    if (skipped) keys = keys.remove(key);
  }
  return keys;
}

}  // namespace

uintptr_t storage_key(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return 0;
  return reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

size_t storage_uses(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().use_count();
}

void free_bytes(const c10::Storage& storage) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, at::Device(at::kCPU)));
  guard(*storage.unsafeGetStorageImpl(), true, 0);
}

void fill_bytes(const c10::Storage& storage, at::DataPtr&& bytes) {
  guard(*storage.unsafeGetStorageImpl(), false, 0);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(bytes));
}

void place(const at::Tensor& tensor, const at::Tensor& block, size_t offset) {
  TORCH_CHECK(storage_key(tensor) != 0, "only a tensor with a storage has a slot");
  check_fits(block, offset, tensor.storage().nbytes());
  move_to(tensor.storage(), block, offset);
}

std::vector<at::Tensor> give(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    TORCH_CHECK(storage_key(result) != 0 && result.device().is_cpu() && !result.is_conj() && !result.is_neg(),
                "only plain tensors of the CPU give their bytes away");
    const c10::StorageImpl& storage = *result.storage().unsafeGetStorageImpl();
    TORCH_CHECK(storage.nbytes() == 0 || storage.data_ptr().get() != nullptr,
                "a result has no bytes to give away");
  }
  std::vector<at::Tensor> owners;
  owners.reserve(results.size());
  for (const at::Tensor& result : results) {
    const c10::Storage& storage = result.storage();
    const size_t nbytes = storage.nbytes();
    at::DataPtr bytes =
        storage.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU)));
    free_bytes(storage);
    at::Tensor owner = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), nbytes, std::move(bytes), c10::GetCPUAllocator(), true),
        c10::DispatchKeySet(c10::DispatchKey::CPU), result.dtype());
    owner.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(),
                                                       result.storage_offset());
    owners.push_back(std::move(owner));
  }
  return owners;
}

void Tape::own(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const c10::Storage& storage = tensor.storage();
    own_.try_emplace(storage.unsafeGetStorageImpl(), storage, storage.nbytes());
  }
}

void Tape::add(c10::OperatorHandle op, std::vector<c10::IValue> args,
               const std::vector<at::Tensor>& results) {
  TORCH_CHECK(!planned_ && retired_.empty(), "a tape takes no call once it is planned or retired");
  const c10::DispatchKeySet keys = keys_of(op, args);
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < args.size(); ++i) {
    if (declared[i].alias_info() == nullptr || !declared[i].alias_info()->isWrite()) continue;
    each_tensor(args[i], [&](const at::Tensor& t) {
      const bool foreign = storage_key(t) != 0 && own_.count(t.storage().unsafeGetStorageImpl()) == 0;
      const auto same = [&](const at::Tensor& other) { return other.is_same(t); };
      if (foreign && std::none_of(written_.begin(), written_.end(), same)) written_.push_back(t);
    });
  }
  Instruction call{std::move(op), keys, std::move(args), {}, {}, {}, {}};
  for (const at::Tensor& tensor : results) {
    Result result;
    if (tensor.defined()) {
      result.tensor = tensor;
      result.storage = tensor.storage();
      result.sizes = tensor.sizes().vec();
      result.strides = tensor.strides().vec();
      result.offset = tensor.storage_offset();
      result.nbytes = result.storage.nbytes();
      result.dtype = tensor.scalar_type();
      const auto same = [&](const at::Tensor& other) { return storage_key(other) == storage_key(tensor); };
      result.sharing = static_cast<size_t>(std::count_if(results.begin(), results.end(), same));
      result.first = std::none_of(call.results.begin(), call.results.end(), [&](const Result& earlier) {
        return earlier.tensor.defined() && same(earlier.tensor);
      });
    }
    call.results.push_back(std::move(result));
  }
  program_.push_back(std::move(call));
}

bool Tape::settled() const {
  return std::all_of(own_.begin(), own_.end(), [](const auto& entry) {
    const auto& [storage, nbytes] = entry.second;
    return storage.nbytes() == nbytes;
  });
}

std::vector<Interval> Tape::intervals() const {
  std::vector<Interval> spans;
  std::unordered_map<c10::StorageImpl*, size_t> places;
  for (size_t at = 0; at < program_.size(); ++at) {
    const auto touch = [&](const at::Tensor& tensor, bool functional) {
      if (storage_key(tensor) == 0) return;
      const c10::Storage& storage = tensor.storage();
      c10::StorageImpl* key = storage.unsafeGetStorageImpl();
      if (storage.nbytes() == 0 || own_.count(key) == 0) return;
      const auto [entry, fresh] = places.try_emplace(key, spans.size());
      if (fresh) spans.push_back({at, at, storage.nbytes(), functional, storage_key(tensor)});
      spans[entry->second].last = at;
    };
    for (const c10::IValue& arg : program_[at].args) {
      each_tensor(arg, [&](const at::Tensor& t) { touch(t, false); });
    }
    for (const Result& result : program_[at].results) {
      if (result.tensor.defined()) touch(result.tensor, true);
    }
  }
  return spans;
}

void Tape::plan(const at::Tensor& block, const Layout& layout) {
  TORCH_CHECK(!planned_ && retired_.empty(), "a tape is planned once, and before it is retired");
  const std::vector<Interval> spans = intervals();
  const auto own = [&](size_t place) -> const c10::Storage& {
    return own_.at(reinterpret_cast<c10::StorageImpl*>(spans.at(place).storage)).first;
  };
  const std::set<size_t> supplied(layout.supplied.begin(), layout.supplied.end());
  std::set<size_t> placed;
  for (const Placement& slot : layout.slots) {
    TORCH_CHECK(!spans.at(slot.interval).functional && supplied.count(slot.interval) == 0,
                "a slot takes only what is written in place");
    check_fits(block, slot.offset, spans[slot.interval].nbytes);
    placed.insert(slot.interval);
  }
  for (const size_t place : layout.supplied) {
    TORCH_CHECK(!spans.at(place).functional, "what every replay makes anew is not supplied");
  }
  for (const size_t place : layout.released) {
    TORCH_CHECK(place < spans.size() && placed.count(place) == 0, "a slot is not released");
  }
  planned_ = true;
  for (const Placement& slot : layout.slots) move_to(own(slot.interval), block, slot.offset);
  for (const size_t place : layout.supplied) program_[spans[place].first].supply.push_back(own(place));
  for (const size_t place : layout.poisoned) program_[spans.at(place).last].poison.push_back(own(place));
  for (const size_t place : layout.released) {
    free_bytes(own(place));
    program_[spans[place].last].release.push_back(own(place));
  }
  own_.clear();
}

void Tape::close() {
  TORCH_CHECK(!running_.load(), "a tape cannot be closed while it replays");
  if (retired_.empty()) retired_ = "closed";
  program_.clear();
  written_.clear();
  own_.clear();
}

std::string Tape::name(size_t call) const { return toString(program_.at(call).op.operator_name()); }

}  // namespace tos::tape
