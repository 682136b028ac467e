// Feeds of a run that is like the one before: from a dict into the tensors that a tape reads.
#include "tape/feeds.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

namespace tos::tape {

namespace {

// Above it a copy is worth threads, and worth letting go of Python's lock.
constexpr size_t kShort = size_t{1} << 16;

// What the dispatcher sees in a dense tensor of the CPU that is no subclass, no wrapper and no lazy view.
c10::DispatchKeySet plain_keys() {
  static const c10::DispatchKeySet keys = at::empty({0}).key_set();
  return keys;
}

bool watched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

int64_t number_in(const at::Tensor& value) {
  const void* data = value.const_data_ptr();
  switch (value.scalar_type()) {
    case at::kLong:
      return *static_cast<const int64_t*>(data);
    case at::kInt:
      return *static_cast<const int32_t*>(data);
    default:
      return static_cast<int64_t>(*static_cast<const bool*>(data));
  }
}

bool has_number(at::ScalarType dtype) {
  return dtype == at::kLong || dtype == at::kInt || dtype == at::kBool;
}

void transfer(const at::Tensor& from, const at::Tensor& to) {
  const size_t nbytes = from.nbytes();
  if (nbytes <= kShort && from.is_contiguous() && to.is_contiguous()) {
    if (nbytes != 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), nbytes);
    return;
  }
  const pybind11::gil_scoped_release unlocked;
  to.copy_(from);
}

}  // namespace

Feeds::~Feeds() {
  for (const Row& row : rows_) Py_DECREF(row.name);
}

void Feeds::add(const std::string& name, const at::Tensor& like, const std::optional<at::Tensor>& target,
                std::optional<int64_t> number) {
  plain_keys();  // known from now on, whatever the modes are in which feeds are taken
  TORCH_CHECK_VALUE(!number.has_value() || (has_number(like.scalar_type()) && like.numel() == 1), name,
                    ": a number is one int64, int32 or bool");
  TORCH_CHECK_VALUE(!target.has_value() || (target->is_cpu() && target->scalar_type() == like.scalar_type() &&
                                            target->sizes() == like.sizes()),
                    name, ": its target has another form");
  PyObject* key = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  if (key == nullptr) throw python_error();
  PyUnicode_InternInPlace(&key);
  rows_.push_back({key, like.scalar_type(), like.sizes().vec(), target.value_or(at::Tensor()), number});
}

bool Feeds::fits(const Row& row, const at::Tensor& value) {
  return value.key_set() == plain_keys() && value.scalar_type() == row.dtype &&
         value.sizes() == at::IntArrayRef(row.sizes) && !value.requires_grad() &&
         (value.numel() == 0 || value.storage().data() != nullptr) &&
         (!row.number.has_value() || number_in(value) == *row.number);
}

bool Feeds::take(PyObject* feed) const {
  if (!PyDict_CheckExact(feed) || static_cast<size_t>(PyDict_GET_SIZE(feed)) != rows_.size()) return false;
  if (c10::InferenceMode::is_enabled() || watched() || at::get_num_threads() != threads_) return false;
  c10::SmallVector<at::Tensor, 8> values;
  for (const Row& row : rows_) {
    PyObject* item = PyDict_GetItemWithError(feed, row.name);
    if (item == nullptr) {
      if (PyErr_Occurred() != nullptr) throw python_error();
      return false;
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(item)) != THPVariableClass) return false;
    const at::Tensor& value = THPVariable_Unpack(item);
    if (!value.defined() || !fits(row, value)) return false;
    values.push_back(value);
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].target.defined()) transfer(values[i], rows_[i].target);
  }
  return true;
}

}  // namespace tos::tape
