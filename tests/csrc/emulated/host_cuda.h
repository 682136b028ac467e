// Runs CUDA kernels on the CPU, for tests: one fibre per CUDA thread, one block after the other.
//
// What a kernel may use is below, under CUDA's own names; anything else does not compile. What would be
// undefined on a device is an error here (LaunchError), never a hang: threads of a block that wait at
// different barriers, lanes that a shuffle names and that never come, a shared array overrun. What would be
// garbage there is 0xFF bytes here, a NaN or a -1: shared memory before the block writes it, a shuffle's
// value from a lane that does not exist.
//
// A launch says in which order threads run. Between two barriers a thread runs without a break, so what
// depends on the order is a race: run each launch in every Order and compare the results.
#pragma once

#include <link.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
// Storage of its own that can be found and poisoned as a whole: nothing else here is thread_local.
#define __shared__ thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace host_cuda {

struct LaunchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Interleaved: a new order in every round, and a thread rests before each atomic.
enum class Order : int64_t { kForward, kBackward, kInterleaved };

enum class State { kReady, kBlock, kWarp, kDone };

constexpr unsigned kWarpSize = 32;
constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 256;
constexpr size_t kMostShared = 227 << 10;
constexpr int kPoison = 0xFF;

// Where a thread waits, and with whom.
struct Site {
  const char* what = "";
  int line = 0;
  unsigned mask = 0;
  bool operator==(const Site& other) const {
    return what == other.what && line == other.line && mask == other.mask;
  }
};

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  dim3 index;
  unsigned number = 0;
  State state = State::kDone;
  Site site;
  uint64_t given = 0;   // to the other lanes, or to the other threads of the block
  unsigned source = 0;  // the lane whose value is wanted; kEverybody for all at once
  uint64_t taken = 0;
};

constexpr unsigned kEverybody = ~0u;

struct Machine {
  std::vector<Fibre> fibres;
  size_t threads = 0;  // of the launch; the first of `fibres`
  Fibre* running = nullptr;
  ucontext_t scheduler;
  dim3 block_index, block_dim, grid_dim;
  std::vector<char> shared;
  std::function<void()> body;
  Order order = Order::kForward;
  uint64_t noise = 1;
  std::string failure;

  uint64_t random() {
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    return noise >> 33;
  }
};

inline Machine machine;

inline void leave_to_scheduler() { swapcontext(&machine.running->context, &machine.scheduler); }

// Ends the launch from within a thread; the thread never goes on.
[[noreturn]] inline void fail(const std::string& why) {
  machine.failure = "thread " + std::to_string(machine.running->number) + ": " + why;
  leave_to_scheduler();
  std::abort();
}

inline void thread_main() {
  machine.body();
  machine.running->state = State::kDone;
  leave_to_scheduler();
}

inline uint64_t wait_for_block(Site site, uint64_t given) {
  Fibre& me = *machine.running;
  me.site = site;
  me.given = given;
  me.state = State::kBlock;
  leave_to_scheduler();
  return me.taken;
}

inline uint64_t wait_for_warp(Site site, uint64_t given, unsigned source) {
  Fibre& me = *machine.running;
  if ((site.mask >> (me.number % kWarpSize) & 1) == 0) fail(std::string(site.what) + " without its own lane");
  me.site = site;
  me.given = given;
  me.source = source;
  me.state = State::kWarp;
  leave_to_scheduler();
  return me.taken;
}

// A barrier of the block opens once every thread has come to the same one; those that left never come.
inline bool open_block() {
  uint64_t sum = 0;
  const Site& site = machine.fibres[0].site;
  for (size_t i = 0; i < machine.threads; ++i) {
    const Fibre& fibre = machine.fibres[i];
    if (fibre.state != State::kBlock || !(fibre.site == site)) return false;
    sum += fibre.given;
  }
  for (size_t i = 0; i < machine.threads; ++i) {
    machine.fibres[i].taken = sum;
    machine.fibres[i].state = State::kReady;
  }
  return true;
}

// The same for the lanes that one lane's mask names; lanes beyond the block's last thread do not exist.
inline bool open_warp(size_t first) {
  const size_t lanes = std::min<size_t>(kWarpSize, machine.threads - first);
  for (size_t leader = 0; leader < lanes; ++leader) {
    const Site site = machine.fibres[first + leader].site;
    if (machine.fibres[first + leader].state != State::kWarp) continue;
    bool complete = true;
    uint64_t votes = 0;
    for (size_t lane = 0; lane < lanes; ++lane) {
      const Fibre& fibre = machine.fibres[first + lane];
      if ((site.mask >> lane & 1) == 0) continue;
      complete &= fibre.state == State::kWarp && fibre.site == site;
      votes |= uint64_t{fibre.given != 0} << lane;
    }
    if (!complete) continue;
    for (size_t lane = 0; lane < lanes; ++lane) {
      if ((site.mask >> lane & 1) == 0) continue;
      Fibre& fibre = machine.fibres[first + lane];
      const bool there = fibre.source < lanes && (site.mask >> fibre.source & 1) != 0;
      if (fibre.source == kEverybody) {
        fibre.taken = votes;
      } else {
        fibre.taken = there ? machine.fibres[first + fibre.source].given : ~uint64_t{0};
      }
      fibre.state = State::kReady;
    }
    return true;
  }
  return false;
}

inline std::string where(const Fibre& fibre) {
  if (fibre.state == State::kDone) return "left";
  std::string place = std::string("at ") + fibre.site.what + " in line " + std::to_string(fibre.site.line);
  if (fibre.state == State::kBlock) return place;
  char mask[16];
  std::snprintf(mask, sizeof mask, "%x", fibre.site.mask);
  return place + " for lanes " + mask;
}

// Who waits where, threads of a kind together.
inline std::string positions() {
  std::string told;
  for (size_t i = 0; i < machine.threads;) {
    const std::string place = where(machine.fibres[i]);
    size_t last = i;
    while (last + 1 < machine.threads && where(machine.fibres[last + 1]) == place) ++last;
    told += (told.empty() ? "" : "; ") + std::string("threads ") + std::to_string(i) + " to " +
            std::to_string(last) + " " + place;
    i = last + 1;
  }
  return told;
}

inline thread_local char shared_anchor;  // so that there is always thread-local storage to find

inline int poison_if_ours(dl_phdr_info* info, size_t, void*) {
  const char* anchor = &shared_anchor;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    char* start = static_cast<char*>(info->dlpi_tls_data);
    if (header.p_type != PT_TLS || start == nullptr) continue;
    if (anchor < start || anchor >= start + header.p_memsz) continue;
    std::memset(start, kPoison, header.p_memsz);
    return 1;
  }
  return 0;
}

inline void poison_shared(size_t bytes) {
  machine.shared.assign(bytes + kGuardBytes, static_cast<char>(kPoison));
  shared_anchor = 0;
  if (dl_iterate_phdr(poison_if_ours, nullptr) == 0) throw LaunchError("shared memory was not found");
}

inline void run_block(dim3 index, size_t shared_bytes) {
  Machine& m = machine;
  m.block_index = index;
  poison_shared(shared_bytes);
  for (size_t i = 0; i < m.threads; ++i) {
    Fibre& fibre = m.fibres[i];
    const unsigned number = static_cast<unsigned>(i);
    fibre.number = number;
    fibre.index = dim3(number % m.block_dim.x, number / m.block_dim.x % m.block_dim.y,
                       number / m.block_dim.x / m.block_dim.y);
    fibre.state = State::kReady;
    fibre.site = Site();
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStackBytes;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, thread_main, 0);
  }
  std::vector<unsigned> turns(m.threads);
  for (size_t i = 0; i < m.threads; ++i) turns[i] = static_cast<unsigned>(i);
  if (m.order == Order::kBackward) std::reverse(turns.begin(), turns.end());
  for (bool live = true; live;) {
    if (m.order == Order::kInterleaved) {
      for (size_t i = m.threads; i > 1; --i) std::swap(turns[i - 1], turns[m.random() % i]);
    }
    bool moved = false;
    for (unsigned turn : turns) {
      if (m.fibres[turn].state != State::kReady) continue;
      m.running = &m.fibres[turn];
      swapcontext(&m.scheduler, &m.running->context);
      if (!m.failure.empty()) throw LaunchError(m.failure);
      moved = true;
    }
    for (size_t first = 0; first < m.threads; first += kWarpSize) {
      while (open_warp(first)) moved = true;
    }
    moved |= open_block();
    live = false;
    for (size_t i = 0; i < m.threads; ++i) live |= m.fibres[i].state != State::kDone;
    if (live && !moved) throw LaunchError("threads wait for each other: " + positions());
  }
  for (size_t i = shared_bytes; i < m.shared.size(); ++i) {
    if (m.shared[i] != static_cast<char>(kPoison)) throw LaunchError("writes past its dynamic shared memory");
  }
}

template <class... Parameters, class... Arguments>
void launch(Order order, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Arguments... arguments) {
  Machine& m = machine;
  const size_t threads = size_t{block.x} * block.y * block.z;
  const size_t blocks = size_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > 1024) throw LaunchError("a block has 1 to 1024 threads");
  if (blocks == 0 || grid.y > 65535 || grid.z > 65535) throw LaunchError("no such grid");
  if (shared_bytes > kMostShared) throw LaunchError("more shared memory than a device has");
  m.order = order;
  m.noise = 1;
  m.failure.clear();
  m.grid_dim = grid;
  m.block_dim = block;
  m.threads = threads;
  m.body = [=] { kernel(arguments...); };
  while (m.fibres.size() < threads) {
    m.fibres.emplace_back();
    m.fibres.back().stack.reset(new char[kStackBytes]);
  }
  for (size_t i = 0; i < blocks; ++i) {
    const size_t place = order == Order::kBackward ? blocks - 1 - i : i;
    run_block(dim3(static_cast<unsigned>(place % grid.x), static_cast<unsigned>(place / grid.x % grid.y),
                   static_cast<unsigned>(place / grid.x / grid.y)),
              shared_bytes);
  }
}

template <class T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T from_lane(Site site, T value, unsigned source) {
  const uint64_t bits = wait_for_warp(site, bits_of(value), source);
  T taken;
  std::memcpy(&taken, &bits, sizeof taken);
  return taken;
}

// Of the block; poisoned before it starts.
inline void* dynamic_shared() { return machine.shared.data(); }

inline unsigned lane() { return machine.running->number % kWarpSize; }

inline unsigned lane_below(unsigned distance) {
  return lane() + distance < kWarpSize ? lane() + distance : lane();
}

// What another thread may do between this one's reading and its atomic.
inline void rest_before_atomic() {
  if (machine.order == Order::kInterleaved && machine.random() % 2 == 0) leave_to_scheduler();
}

template <class T, class F>
T atomically(T* place, F change) {
  static_assert(sizeof(T) >= 4, "CUDA has no atomics of this size");
  rest_before_atomic();
  if (reinterpret_cast<uintptr_t>(place) % sizeof(T) != 0) fail("an atomic at a place that is not aligned");
  const T before = *place;
  *place = change(before);
  return before;
}

// For what is loaded or stored in several elements at once.
inline void require_aligned(const void* place, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(place) % bytes != 0) fail("an access that is not aligned");
}

}  // namespace host_cuda

#include "host_intrinsics.h"
