// The tape for Python.
#include <ATen/ScalarOps.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/word.h"
#include "tape/feeds.h"
#include "tape/strip.h"
#include "tape/tape.h"

namespace py = pybind11;

namespace tos::tape {

namespace {

bool is_number(const py::handle& object) {
  return PyBool_Check(object.ptr()) || PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
         PyComplex_Check(object.ptr());
}

c10::Scalar scalar_of(const py::handle& object) {
  if (PyBool_Check(object.ptr())) return object.cast<bool>();
  if (PyLong_Check(object.ptr())) return object.cast<int64_t>();
  if (PyFloat_Check(object.ptr())) return object.cast<double>();
  return c10::complex<double>(object.cast<std::complex<double>>());
}

bool takes_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    return type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  return type.kind() == c10::TypeKind::TensorType;
}

// A number given for a tensor is one that takes part in type promotion as a number, as in eager calls.
c10::IValue value_of(const py::handle& object, const c10::TypePtr& type) {
  if (is_number(object) && takes_tensor(*type)) {
    at::Tensor number = c10::scalar_to_tensor(scalar_of(object));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }
  return torch::jit::toIValue(object, type);
}

void add(Tape& tape, const std::string& name, const std::string& overload, const py::list& args,
         const std::vector<std::optional<at::Tensor>>& results) {
  c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  const auto& declared = op.schema().arguments();
  TORCH_CHECK_VALUE(args.size() == declared.size(), name, " takes ", declared.size(), " arguments, not ",
                    args.size());
  std::vector<c10::IValue> values;
  values.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    values.push_back(value_of(args[i], declared[i].real_type()));
  }
  std::vector<at::Tensor> tensors;
  tensors.reserve(results.size());
  for (const auto& result : results) tensors.push_back(result.value_or(at::Tensor()));
  tape.add(std::move(op), std::move(values), tensors);
}

// With a validation word: it is cleared first, and True says that a call noted a fault in it.
py::object replay(Tape& tape, const std::optional<at::Tensor>& word) {
  int32_t* noted = nullptr;
  if (word.has_value()) {
    TORCH_CHECK_VALUE(word->is_cpu() && word->is_contiguous() && word->scalar_type() == at::kInt &&
                          word->numel() == word::kSize,
                      "the word is not an int32 tensor of ", int{word::kSize}, " elements on the CPU");
    noted = word->mutable_data_ptr<int32_t>();
    std::fill_n(noted, int{word::kSize}, 0);
  }
  Outcome outcome;
  {
    const py::gil_scoped_release unlocked;
    outcome = tape.replay();
  }
  if (outcome.diverged) return py::make_tuple(outcome.call, tape.name(outcome.call), outcome.what);
  if (noted != nullptr && noted[word::kFlags] != 0) return py::bool_(true);
  return py::none();
}

py::list intervals(const Tape& tape) {
  py::list rows;
  for (const Interval& i : tape.intervals()) {
    rows.append(py::make_tuple(i.first, i.last, i.nbytes, i.functional, i.storage));
  }
  return rows;
}

void plan(Tape& tape, const at::Tensor& block, const std::vector<std::pair<size_t, size_t>>& slots,
          std::vector<size_t> supplied, std::vector<size_t> released, std::vector<size_t> poisoned) {
  Layout layout{{}, std::move(supplied), std::move(released), std::move(poisoned)};
  layout.slots.reserve(slots.size());
  for (const auto& [interval, offset] : slots) layout.slots.push_back({interval, offset});
  tape.plan(block, layout);
}

std::vector<uintptr_t> storage_keys(const std::vector<at::Tensor>& tensors) {
  std::vector<uintptr_t> keys;
  keys.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) keys.push_back(storage_key(tensor));
  return keys;
}

// References to each tensor's storage, and those to the tensor beyond Python's and the ones made here: more
// than the results that share the storage tell that somebody else holds it.
std::vector<size_t> holders(const std::vector<at::Tensor>& tensors) {
  constexpr size_t kKnown = 2;
  std::vector<size_t> counts;
  counts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(storage_uses(tensor) + tensor.use_count() - kKnown);
  }
  return counts;
}

// Tensors of a run by argument, and numbers that grow: place, how they are wanted, and what they are.
using TensorsRow = std::tuple<size_t, bool, std::vector<size_t>>;
using NumbersRow = std::tuple<size_t, int, std::vector<int64_t>, std::vector<int64_t>>;
using FormRow = std::tuple<size_t, std::vector<int64_t>, std::vector<int64_t>>;

void add_growing(Strip& strip, const std::string& name, const std::string& overload, const py::list& args,
                 const std::vector<TensorsRow>& tensors, const std::vector<NumbersRow>& numbers,
                 const std::vector<int64_t>& results, const std::vector<FormRow>& forms) {
  c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  const auto& declared = op.schema().arguments();
  TORCH_CHECK_VALUE(args.size() == declared.size(), name, " takes ", declared.size(), " arguments, not ",
                    args.size());
  GrowingCall call{std::move(op), {}, {}, {}, results, {}, {}};
  std::vector<bool> later(declared.size(), false);
  for (const auto& [place, list, slots] : tensors) {
    later.at(place) = true;
    call.tensors.push_back({place, list, slots});
  }
  for (const auto& [place, kind, base, slope] : numbers) {
    later.at(place) = true;
    const bool wrapped = kind == 0 && takes_tensor(*declared[place].real_type());
    call.numbers.push_back({place,
                            kind == 1 ? Numbers::Kind::kList
                            : wrapped ? Numbers::Kind::kTensor
                                      : Numbers::Kind::kInt,
                            base, slope});
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    call.args.push_back(later[i] ? c10::IValue() : value_of(args[i], declared[i].real_type()));
  }
  for (const auto& [slot, base, slope] : forms) call.forms.push_back({slot, base, slope});
  strip.add(std::move(call));
}

py::object run_growing(const Strip& strip, std::vector<at::Tensor> inputs, int64_t by) {
  std::vector<at::Tensor> results;
  int64_t wrong = -1;
  {
    const py::gil_scoped_release unlocked;
    wrong = strip.run(std::move(inputs), by, results);
  }
  if (wrong >= 0) return py::int_(wrong);
  return py::cast(std::move(results));
}

bool take(const Feeds& feeds, const py::object& feed) { return feeds.take(feed.ptr()); }

}  // namespace

}  // namespace tos::tape

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using tos::tape::Tape;
  py::class_<Tape>(m, "Tape", py::module_local())
      .def(py::init<>())
      .def("own", torch::wrap_pybind_function(&Tape::own))
      .def("add", torch::wrap_pybind_function(&tos::tape::add))
      .def("settled", &Tape::settled)
      .def("intervals", torch::wrap_pybind_function(&tos::tape::intervals))
      .def("plan", torch::wrap_pybind_function(&tos::tape::plan))
      .def("replay", torch::wrap_pybind_function(&tos::tape::replay), py::arg("word") = py::none())
      .def("close", torch::wrap_pybind_function(&Tape::close))
      .def("name", torch::wrap_pybind_function(&Tape::name))
      .def_property_readonly("position", &Tape::position)
      .def_property_readonly("retired", &Tape::retired)
      .def("__len__", &Tape::size);
  using tos::tape::Strip;
  py::class_<Strip>(m, "Strip", py::module_local())
      .def(py::init<size_t>())
      .def("add", torch::wrap_pybind_function(&tos::tape::add_growing))
      .def("finish", torch::wrap_pybind_function(&Strip::finish))
      .def("run", torch::wrap_pybind_function(&tos::tape::run_growing))
      .def("__len__", &Strip::size);
  using tos::tape::Feeds;
  py::class_<Feeds>(m, "Feeds", py::module_local())
      .def(py::init<int>())
      .def("add", torch::wrap_pybind_function(&Feeds::add))
      .def("take", torch::wrap_pybind_function(&tos::tape::take));
  m.def("storage_keys", torch::wrap_pybind_function(&tos::tape::storage_keys));
  m.def("place", torch::wrap_pybind_function(&tos::tape::place));
  m.def("give", torch::wrap_pybind_function(&tos::tape::give));
  m.def("holders", torch::wrap_pybind_function(&tos::tape::holders));
}
