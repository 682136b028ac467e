#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tos {

// Calls `visit(i)` for i from 0 to `count`, on torch's threads, each of which takes the next one when it is
// done: a thread that the machine holds up delays its one share and no other. Shares must not depend on the
// number of threads where results must not.
template <typename Visit>
void each_share(int64_t count, const Visit& visit) {
  const int64_t threads = std::min<int64_t>(count, at::get_num_threads());
  if (threads <= 1 || at::in_parallel_region()) {
    for (int64_t i = 0; i < count; ++i) visit(i);
    return;
  }
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) visit(i);
  });
}

// Bytes of a weight that make a share: some sixteen of it, none too small to be worth a thread.
inline int64_t share_of(int64_t bytes) { return std::clamp<int64_t>(bytes / 16, 1 << 17, 1 << 22); }

}  // namespace tos
