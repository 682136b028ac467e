// Decision trees: every row walks down every tree, and the leaves' votes are put together.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace tos {

namespace {

enum How : int64_t { kSum, kLeast, kGreatest };

// A node is five integers: the feature compared, -1 for a leaf, then the place of the node that follows where
// the feature lies below, at or above the threshold, and where it is no number.
constexpr int64_t kNode = 5;

template <typename Real>
struct Trees {
  const int64_t* roots;
  int64_t count;
  const Real* thresholds;
  const int32_t* nodes;
  int64_t size, depth;
};

// The leaf that a row of `width` features ends in.
template <typename Real>
int64_t walk(const Trees<Real>& trees, int64_t place, const Real* row, int64_t width) {
  for (int64_t step = 0; step <= trees.depth; ++step) {
    TORCH_CHECK_INDEX(place >= 0 && place < trees.size, "a tree leads to node ", place, " of ", trees.size);
    const int32_t* node = trees.nodes + place * kNode;
    if (node[0] < 0) return place;
    TORCH_CHECK_INDEX(node[0] < width, "a tree compares feature ", node[0], " of ", width);
    const Real value = row[node[0]], threshold = trees.thresholds[place];
    const int outcome = value != value ? 3 : static_cast<int>(value >= threshold) + (value > threshold);
    place = node[1 + outcome];
  }
  TORCH_CHECK_INDEX(false, "a tree is deeper than ", trees.depth, " branches");
}

struct Votes {
  const int64_t* targets;
  const double* weights;
  int64_t each, columns, how;

  void cast(int64_t leaf, double* total, bool* voted) const {
    for (int64_t vote = leaf * each; vote < (leaf + 1) * each; ++vote) {
      const int64_t target = targets[vote];
      // What fills the table up votes for the column behind the last.
      if (target < 0 || target >= columns) continue;
      const double weight = weights[vote];
      double& sum = total[target];
      if (how == kSum) {
        sum += weight;
      } else if (!voted[target] || weight != weight || (how == kLeast ? weight < sum : weight > sum)) {
        sum = weight;
      }
      voted[target] = true;
    }
  }
};

// Gives float64 [n, columns], 0 where nothing voted, and bool, whether anything did; see ml/trees/forest.py.
std::tuple<at::Tensor, at::Tensor> forest_votes(const at::Tensor& x, const at::Tensor& roots,
                                                const at::Tensor& thresholds, const at::Tensor& nodes,
                                                int64_t depth, const at::Tensor& vote_targets,
                                                const at::Tensor& vote_weights, int64_t columns,
                                                int64_t how) {
  TORCH_CHECK_VALUE(x.dim() == 2 && x.scalar_type() == thresholds.scalar_type(), "forest_votes: features ",
                    x.scalar_type(), " ", x.sizes(), " for thresholds ", thresholds.scalar_type());
  TORCH_CHECK_VALUE(nodes.scalar_type() == at::kInt && nodes.is_contiguous() && nodes.dim() == 2 &&
                        nodes.size(1) == kNode && thresholds.is_contiguous() &&
                        thresholds.numel() == nodes.size(0) && roots.scalar_type() == at::kLong &&
                        roots.is_contiguous(),
                    "forest_votes: the nodes are not a table");
  TORCH_CHECK_VALUE(vote_targets.scalar_type() == at::kLong && vote_weights.scalar_type() == at::kDouble &&
                        vote_targets.dim() == 2 && vote_targets.size(0) == nodes.size(0) &&
                        vote_targets.sizes() == vote_weights.sizes() && vote_targets.is_contiguous() &&
                        vote_weights.is_contiguous(),
                    "forest_votes: the votes are not a table");
  const int64_t rows = x.size(0), width = x.size(1);
  at::Tensor total = at::zeros({rows, columns}, x.options().dtype(at::kDouble));
  at::Tensor voted = at::zeros({rows, columns}, x.options().dtype(at::kBool));
  const at::Tensor features = x.contiguous();
  const Votes votes{vote_targets.const_data_ptr<int64_t>(), vote_weights.const_data_ptr<double>(),
                    vote_targets.size(1), columns, how};
  double* const sums = total.mutable_data_ptr<double>();
  bool* const marks = voted.mutable_data_ptr<bool>();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "forest_votes", [&] {
    const Trees<scalar_t> trees{
        roots.const_data_ptr<int64_t>(), roots.numel(), thresholds.const_data_ptr<scalar_t>(),
        nodes.const_data_ptr<int32_t>(), nodes.size(0), depth};
    const scalar_t* const from = features.const_data_ptr<scalar_t>();
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, trees.count * depth));
    at::parallel_for(0, rows, grain, [&](int64_t first, int64_t last) {
      // Tree by tree, so that its nodes stay close at hand.
      for (int64_t tree = 0; tree < trees.count; ++tree) {
        for (int64_t row = first; row < last; ++row) {
          const int64_t leaf = walk(trees, trees.roots[tree], from + row * width, width);
          votes.cast(leaf, sums + row * columns, marks + row * columns);
        }
      }
    });
  });
  return {total, voted};
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("forest_votes", &tos::forest_votes); }
