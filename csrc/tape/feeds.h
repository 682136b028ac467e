#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tos::tape {

// The feeds of runs that are alike, checked and copied in one go: after a replay little of Python is in the
// processor's caches, so that the same in Python takes several times what it takes in a loop of its own.
class Feeds {
 public:
  // Expects feeds in number and form as the ones that are added, and as many threads of CPU kernels.
  explicit Feeds(int threads) : threads_(threads) {}

  Feeds(const Feeds&) = delete;
  Feeds& operator=(const Feeds&) = delete;
  ~Feeds();

  // Adds a feed: a tensor of its dtype and sizes, which is not kept; where its data go, if anywhere; the
  // number that it must hold, if it must hold one.
  void add(const std::string& name, const at::Tensor& like, const std::optional<at::Tensor>& target,
           std::optional<int64_t> number);

  // Copies feeds to their targets. False, and nothing is written, when one is not surely like those added: a
  // dict of plain CPU tensors without gradients, outside of inference mode and of other modes of the
  // caller's.
  bool take(PyObject* feed) const;

 private:
  struct Row {
    PyObject* name;
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    at::Tensor target;
    std::optional<int64_t> number;
  };

  static bool fits(const Row& row, const at::Tensor& value);

  std::vector<Row> rows_;
  int threads_;
};

}  // namespace tos::tape
