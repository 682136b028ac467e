// NonMaxSuppression: boxes in the order of their scores, each held against those chosen before it.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tos {

namespace {

template <typename Real>
struct Box {
  Real low[2], high[2], area;

  // A corner that is no number makes the area none, so that the box neither suppresses nor is suppressed.
  static Box from(const Real* corners, bool centred) {
    Box box;
    for (int axis = 0; axis < 2; ++axis) {
      const Real a = corners[axis], b = corners[axis + 2];
      if (centred) {
        box.low[axis] = a - b / 2;
        box.high[axis] = a + b / 2;
      } else {
        box.low[axis] = (a < b || a != a) ? a : b;
        box.high[axis] = (a > b || a != a) ? a : b;
      }
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
  }
};

// The chosen boxes of a group, coordinate by coordinate within a block, so that a compiler makes lanes of it.
template <typename Real>
class Chosen {
 public:
  void add(const Box<Real>& box) {
    if (count_ % kBlock == 0) blocks_.emplace_back();
    Block& block = blocks_.back();
    const int lane = static_cast<int>(count_++ % kBlock);
    for (int axis = 0; axis < 2; ++axis) {
      block.low[axis][lane] = box.low[axis];
      block.high[axis][lane] = box.high[axis];
    }
    block.area[lane] = box.area;
  }

  bool suppress(const Box<Real>& box, Real threshold) const {
    int64_t left = count_;
    for (const Block& block : blocks_) {
      const int lanes = static_cast<int>(std::min<int64_t>(left, kBlock));
      left -= lanes;
      // Only below a threshold of zero do boxes that share nothing suppress each other.
      if (threshold >= 0 && !touches(block, box)) continue;
      for (int lane = 0; lane < lanes; ++lane) {
        if (share(block, lane, box) > threshold) return true;
      }
    }
    return false;
  }

 private:
  static constexpr int kBlock = 8;

  struct Block {
    Real low[2][kBlock], high[2][kBlock], area[kBlock];
  };

  static bool touches(const Block& block, const Box<Real>& box) {
    int any = 0;
    for (int lane = 0; lane < kBlock; ++lane) {
      any |= static_cast<int>(block.low[0][lane] < box.high[0]) &
             static_cast<int>(box.low[0] < block.high[0][lane]) &
             static_cast<int>(block.low[1][lane] < box.high[1]) &
             static_cast<int>(box.low[1] < block.high[1][lane]);
    }
    return any != 0;
  }

  static Real side(Real low_a, Real high_a, Real low_b, Real high_b) {
    const Real length = std::min(high_a, high_b) - std::max(low_a, low_b);
    return length < 0 ? 0 : length;
  }

  // The intersection's share of the union; of two boxes without area it is no number.
  static Real share(const Block& block, int lane, const Box<Real>& box) {
    Real both = side(block.low[0][lane], block.high[0][lane], box.low[0], box.high[0]);
    both *= side(block.low[1][lane], block.high[1][lane], box.low[1], box.high[1]);
    return both / (block.area[lane] + box.area - both);
  }

  std::vector<Block> blocks_;
  int64_t count_ = 0;
};

template <typename Real>
struct Candidate {
  Real score;
  int64_t place;
};

// Whether `a` comes behind `b`: scores fall, what is no number comes first, and of equals the first does.
template <typename Real>
bool behind(const Candidate<Real>& a, const Candidate<Real>& b) {
  if (a.score < b.score) return true;
  if (a.score > b.score) return false;
  const bool a_none = a.score != a.score, b_none = b.score != b.score;
  return a_none == b_none ? a.place > b.place : b_none;
}

struct Rules {
  int64_t limit;
  double overlap;
  std::optional<double> score;
  bool centred;
};

// Places of the chosen among the `count` boxes of one batch entry and class, best first.
template <typename Real>
std::vector<int64_t> choose(const Real* boxes, const Real* scores, int64_t count, const Rules& rules) {
  std::vector<Candidate<Real>> open;
  open.reserve(static_cast<size_t>(count));
  const bool bounded = rules.score.has_value();
  const Real score_floor = static_cast<Real>(rules.score.value_or(0.0));
  for (int64_t place = 0; place < count; ++place) {
    if (!bounded || scores[place] > score_floor) open.push_back({scores[place], place});
  }
  // A group mostly fills up from its first few candidates: a heap gives those without sorting the others.
  std::make_heap(open.begin(), open.end(), behind<Real>);
  const Real threshold = static_cast<Real>(rules.overlap);
  Chosen<Real> chosen;
  std::vector<int64_t> places;
  while (!open.empty() && static_cast<int64_t>(places.size()) < rules.limit) {
    const int64_t place = open.front().place;
    std::pop_heap(open.begin(), open.end(), behind<Real>);
    open.pop_back();
    const Box<Real> box = Box<Real>::from(boxes + 4 * place, rules.centred);
    if (chosen.suppress(box, threshold)) continue;
    chosen.add(box);
    places.push_back(place);
  }
  return places;
}

// Gives rows of batch, class and box; see ops/onnx/nms.py, which checks the shapes.
at::Tensor non_max_suppression(const at::Tensor& boxes, const at::Tensor& scores, int64_t limit,
                               double overlap, std::optional<double> score, bool centred) {
  TORCH_CHECK_VALUE(boxes.dim() == 3 && boxes.size(2) == 4 && scores.dim() == 3 &&
                        scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1) &&
                        scores.scalar_type() == boxes.scalar_type(),
                    "non_max_suppression: boxes ", boxes.sizes(), " do not fit scores ", scores.sizes());
  const int64_t classes = scores.size(1), count = scores.size(2), groups = scores.size(0) * classes;
  const at::Tensor from = boxes.contiguous(), by = scores.contiguous();
  const Rules rules{limit, overlap, score, centred};
  std::vector<std::vector<int64_t>> chosen(static_cast<size_t>(groups));
  AT_DISPATCH_FLOATING_TYPES(boxes.scalar_type(), "non_max_suppression", [&] {
    const scalar_t* corners = from.const_data_ptr<scalar_t>();
    const scalar_t* values = by.const_data_ptr<scalar_t>();
    at::parallel_for(0, groups, 1, [&](int64_t first, int64_t last) {
      for (int64_t group = first; group < last; ++group) {
        chosen[static_cast<size_t>(group)] =
            choose(corners + group / classes * count * 4, values + group * count, count, rules);
      }
    });
  });
  int64_t total = 0;
  for (const auto& places : chosen) total += static_cast<int64_t>(places.size());
  at::Tensor rows = at::empty({total, 3}, boxes.options().dtype(at::kLong));
  int64_t* to = rows.mutable_data_ptr<int64_t>();
  for (int64_t group = 0; group < groups; ++group) {
    for (const int64_t place : chosen[static_cast<size_t>(group)]) {
      *to++ = group / classes;
      *to++ = group % classes;
      *to++ = place;
    }
  }
  return rows;
}

}  // namespace

}  // namespace tos

TORCH_LIBRARY_IMPL(torch_ort_session, CPU, m) { m.impl("non_max_suppression", &tos::non_max_suppression); }
