// Ops that keep or break the promises a recorder builds on.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace {

using at::Tensor;

Tensor plain(const Tensor& x) { return x * 2 + 1; }

Tensor hidden_alias(const Tensor& x) { return x; }

Tensor sometimes_alias(const Tensor& x, int64_t copy) {
  return copy == 0 ? x.view({-1}) : x.clone().view({-1});
}

void add_into(Tensor x, const Tensor& y) { x.add_(y); }

void hidden_write(const Tensor& x) { const_cast<Tensor&>(x).mul_(2); }

Tensor hidden_write_and_alias(const Tensor& x) {
  const_cast<Tensor&>(x).mul_(2);
  return x;
}

Tensor& twice_out(const Tensor& x, Tensor& out) { return at::add_out(out, x, x); }

Tensor hidden_read(const Tensor& x) { return x.sum().item<float>() > 0 ? x + 1 : x - 1; }

// Gives the same memory at every call.
Tensor workspace(const Tensor& x) {
  static Tensor buffer;
  if (!buffer.defined() || buffer.numel() != x.numel()) buffer = at::empty_like(x);
  return at::add_out(buffer, x, x);
}

// Once a sum is positive it gives its argument instead of a copy: an alias that the recording did not see.
Tensor late_alias(const Tensor& x, const Tensor& y) { return x.sum().item<float>() > 0 ? y : y.clone(); }

std::tuple<Tensor, Tensor> two_of_one(const Tensor& x) {
  const int64_t n = x.numel();
  Tensor both = at::empty({2 * n}, x.options());
  both.slice(0, 0, n).copy_(x.flatten() * 3);
  both.slice(0, n, 2 * n).copy_(x.flatten() * 5);
  return {both.slice(0, 0, n), both.slice(0, n, 2 * n)};
}

Tensor many_kinds(const Tensor& x, const std::optional<Tensor>& bias, std::string_view mode,
                  at::ArrayRef<double> alpha) {
  Tensor y = x + alpha[0];
  if (bias) y = y + *bias;
  return mode == "relu" ? y.relu() : y;
}

// Its length follows the data, and nothing says so.
Tensor hidden_length(const Tensor& x) {
  return x.flatten().slice(0, 0, x.sum().item<float>() > 0 ? 3 : 2) + 0;
}

std::tuple<Tensor, Tensor> maybe_undefined(const Tensor& x) { return {x + 1, Tensor()}; }

std::tuple<Tensor, Tensor> writes_and_makes(Tensor state, const Tensor& x) {
  state.add_(x);
  return {state * 2, x * 3};
}

Tensor throws_on_negative(const Tensor& x) {
  TORCH_CHECK_INDEX(x.sum().item<float>() >= 0, "the sum is negative");
  return x + 1;
}

}  // namespace

TORCH_LIBRARY(provoking, m) {
  m.def("plain(Tensor x) -> Tensor");
  m.def("hidden_alias(Tensor x) -> Tensor");
  m.def("sometimes_alias(Tensor(a) x, int copy) -> Tensor(a)");
  m.def("add_into(Tensor(a!) x, Tensor y) -> ()");
  m.def("hidden_write(Tensor x) -> ()");
  m.def("hidden_write_and_alias(Tensor x) -> Tensor");
  m.def("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("hidden_read(Tensor x) -> Tensor");
  m.def("workspace(Tensor x) -> Tensor");
  m.def("late_alias(Tensor x, Tensor y) -> Tensor");
  m.def("two_of_one(Tensor x) -> (Tensor, Tensor)");
  m.def("many_kinds(Tensor x, Tensor? bias, str mode, float[] alpha) -> Tensor");
  m.def("hidden_length(Tensor x) -> Tensor");
  m.def("maybe_undefined(Tensor x) -> (Tensor, Tensor)");
  m.def("writes_and_makes(Tensor(a!) state, Tensor x) -> (Tensor, Tensor)");
  m.def("throws_on_negative(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(provoking, CPU, m) {
  m.impl("plain", &plain);
  m.impl("hidden_alias", &hidden_alias);
  m.impl("sometimes_alias", &sometimes_alias);
  m.impl("add_into", &add_into);
  m.impl("hidden_write", &hidden_write);
  m.impl("hidden_write_and_alias", &hidden_write_and_alias);
  m.impl("twice.out", &twice_out);
  m.impl("workspace", &workspace);
  m.impl("late_alias", &late_alias);
  m.impl("two_of_one", &two_of_one);
  m.impl("many_kinds", &many_kinds);
  m.impl("hidden_length", &hidden_length);
  m.impl("maybe_undefined", &maybe_undefined);
  m.impl("writes_and_makes", &writes_and_makes);
  m.impl("throws_on_negative", &throws_on_negative);
}

TORCH_LIBRARY_IMPL(provoking, CompositeImplicitAutograd, m) { m.impl("hidden_read", &hidden_read); }
