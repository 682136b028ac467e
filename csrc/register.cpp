// Every schema of the namespace, once. Implementations live in one file per op and device.
#include <torch/library.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/abi.h"

namespace tos {

int64_t abi_version() { return kAbiVersion; }

std::vector<std::string> cpu_instructions();

namespace {

// What tells torch that an op writes into an argument and returns that, where torch knows of it.
template <typename Tag>
std::vector<Tag> writes_into_out() {
  if constexpr (requires { Tag::out; }) {
    return {Tag::out};
  } else {
    return {};
  }
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY(torch_ort_session, m) {
  m.def("abi_version() -> int", &tos::abi_version);
  m.def("cpu_instructions() -> str[]", &tos::cpu_instructions);
  m.def(
      "matmul_nbits(Tensor a, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? bias, SymInt rows, "
      "int bits, int block_size, bool coarse, int instructions=-1) -> Tensor");
  m.def("expert_rows(Tensor x, Tensor experts, Tensor weight, Tensor? bias, int instructions=-1) -> Tensor");
  m.def(
      "expert_rows_nbits(Tensor x, Tensor experts, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? "
      "bias, int bits, int block_size, int instructions=-1) -> Tensor");
  m.def("gemv(Tensor x, Tensor weight, Tensor? bias=None, int instructions=-1) -> Tensor");
  const std::vector<at::Tag> tags = tos::writes_into_out<at::Tag>();
  m.def(torch::schema("gemv.out(Tensor x, Tensor weight, Tensor? bias=None, int instructions=-1, *, "
                      "Tensor(a!) out) -> Tensor(a!)"),
        tags);
  m.def("check_index(Tensor index, SymInt size, int node, Tensor(a!)? word) -> Tensor");
  m.def(
      "check_range(Tensor values, SymInt low, SymInt high, int flag, int node, Tensor(a!)? word) -> Tensor");
  m.def(
      "non_max_suppression(Tensor boxes, Tensor scores, int limit, float overlap, float? score, bool "
      "centred) "
      "-> Tensor");
  m.def(
      "forest_votes(Tensor x, Tensor roots, Tensor thresholds, Tensor nodes, int depth, Tensor vote_targets, "
      "Tensor vote_weights, int columns, int how) -> (Tensor, Tensor)");
  m.def(
      "skip_rms_norm(Tensor x, Tensor? skip, Tensor? bias, Tensor gamma, float epsilon, bool wants_total, "
      "bool wants_inverse, int instructions=-1) -> (Tensor, Tensor, Tensor)");
  m.def(
      "skip_rms_norm.out(Tensor x, Tensor? skip, Tensor? bias, Tensor gamma, float epsilon, bool "
      "wants_total, bool wants_inverse, int instructions=-1, *, Tensor(a!) y, Tensor(b!) total, Tensor(c!) "
      "inverse) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  m.def(
      "activate(Tensor x, Tensor? up, Tensor? bias, int kind, bool halves, float alpha, float beta, float "
      "limit, bool rounded, int instructions=-1) -> Tensor",
      {at::Tag::pointwise});
  m.def(
      "activate.out(Tensor x, Tensor? up, Tensor? bias, int kind, bool halves, float alpha, float beta, "
      "float limit, bool rounded, int instructions=-1, *, Tensor(a!) out) -> Tensor(a!)");
  m.def(
      "sample_token(Tensor scores, Tensor(a!) state, float temperature, int top_k, float top_p, int keep, "
      "bool closed) -> Tensor");
  m.def(
      "rotary(Tensor x, Tensor cos, Tensor sin, Tensor? positions, int heads, bool interleaved, int node, "
      "Tensor(a!)? word, int instructions=-1) -> Tensor");
  m.def(
      "rotary.out(Tensor x, Tensor cos, Tensor sin, Tensor? positions, int heads, bool interleaved, int "
      "node, Tensor(a!)? word, int instructions=-1, *, Tensor(b!) out) -> Tensor(b!)");
  m.def(
      "requantize(Tensor x, Tensor? x_zero, Tensor factor, bool divide, Tensor? zero, ScalarType dtype, "
      "int instructions=-1) -> Tensor");
  m.def(
      "quantized_pair(Tensor a, Tensor a_scale, Tensor? a_zero, Tensor b, Tensor b_scale, Tensor? b_zero, "
      "Tensor scale, Tensor? zero, bool product, int instructions=-1) -> Tensor");
  m.def("by_table(Tensor x, Tensor table) -> Tensor");
  m.def(
      "gqa_decode(Tensor query, Tensor? key, Tensor? value, Tensor past_key, Tensor past_value, Tensor last, "
      "SymInt total, Tensor? cos, Tensor? sin, Tensor? position, Tensor? bias, Tensor? sink, int heads, "
      "int groups, float scale, int window, float softcap, bool interleaved, bool smooth, int node, "
      "Tensor(a!)? word, int instructions=-1, *, Tensor? query_norm=None, Tensor? key_norm=None, "
      "float query_epsilon=0, float key_epsilon=0, Tensor? counts=None, bool rolling=False, Tensor? "
      "key_scale=None, Tensor? value_scale=None) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("cache_append_(Tensor(a!)[] caches, Tensor[] fresh, Tensor[] starts, Tensor? word) -> ()");
  m.def("cache_appended(Tensor past, Tensor fresh, Tensor start, SymInt rows) -> Tensor");
  m.def(
      "lstm_layer(Tensor gates, Tensor recurrence, Tensor h, Tensor c, Tensor? lengths, int direction, float "
      "clip, int instructions=-1) -> (Tensor, Tensor, Tensor)");
  m.def(
      "gru_layer(Tensor gates, Tensor recurrence, Tensor bias, Tensor h, Tensor? lengths, int direction, "
      "float "
      "clip, bool linear, int instructions=-1) -> (Tensor, Tensor)");
  m.def("elementwise_chain(Tensor[] inputs, int[] program, float[] constants, int instructions=-1) -> Tensor",
        {at::Tag::pointwise});
  m.def(torch::schema("elementwise_chain.out(Tensor[] inputs, int[] program, float[] constants, "
                      "int instructions=-1, *, Tensor(a!) out) -> Tensor(a!)"),
        tags);
  m.def("top_k(Tensor x, int k, int axis, bool largest) -> Tensor");
}
