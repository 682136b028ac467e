// Kernels that do what a kernel must not do, and the like of them that do it right.
#include "entries.h"
#include "host_cuda.h"

namespace {

using host_cuda::launch;
using host_cuda::Order;

// Thread 0 never comes to the barrier that the others wait at.
__global__ void divergent(int* out) {
  if (threadIdx.x != 0) __syncthreads();
  out[threadIdx.x] = 1;
}

// Every thread comes to a barrier, but not to the same one.
__global__ void two_barriers(int* out) {
  if (threadIdx.x < 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void absent_lane(int* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = __shfl_xor_sync(~0u, out[threadIdx.x], 1);
}

__global__ void foreign_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0Fu, out[threadIdx.x], 0); }

// Each thread reads its neighbour's place, in shared memory if `safe` after a barrier.
__global__ void neighbour(int* out, bool safe) {
  __shared__ int values[256];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (safe) __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

// One place for all threads, increased with or without an atomic.
__global__ void count(int* out, bool safe) {
  if (safe) {
    atomicAdd(out, 1);
  } else {
    const int seen = *out;
    atomicAdd(out + 1, 0);
    *out = seen + 1;
  }
}

__global__ void unwritten(float* out) {
  __shared__ float values[64];
  if (threadIdx.x % 2 == 0) values[threadIdx.x] = 1.0f;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}

__global__ void unwritten_dynamic(float* out) {
  auto* values = static_cast<float*>(host_cuda::dynamic_shared());
  if (threadIdx.x % 2 == blockIdx.x % 2) values[threadIdx.x] = 1.0f;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}

__global__ void overrun(int) { static_cast<char*>(host_cuda::dynamic_shared())[64 + threadIdx.x] = 1; }

__global__ void misaligned(int* out) {
  atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(out) + 2), 1);
}

// What each lane gets by shuffles of three kinds, and who is odd.
__global__ void collectives(int* out) {
  const int me = static_cast<int>(threadIdx.x);
  int* place = out + 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  place[0] = __shfl_xor_sync(~0u, me, 1);
  place[1] = __shfl_down_sync(~0u, me, 3);
  place[2] = __shfl_sync(~0u, me, 2);
  place[3] = static_cast<int>(__ballot_sync(~0u, threadIdx.x % 2));
}

// Halves of a warp that go their own way and meet again.
__global__ void halves(int* out) {
  const bool low = threadIdx.x < 16;
  int value = static_cast<int>(threadIdx.x);
  if (low) {
    value = __shfl_xor_sync(0x0000FFFFu, value, 1);
    value = __shfl_xor_sync(0x0000FFFFu, value, 2);
  } else {
    value = __shfl_xor_sync(0xFFFF0000u, value, 1);
  }
  __syncwarp(~0u);
  out[threadIdx.x] = __shfl_xor_sync(~0u, value, 16);
}

__global__ void votes(int* out) {
  const int odd = __syncthreads_count(threadIdx.x % 2);
  const int any = __syncthreads_or(threadIdx.x == 40);
  out[threadIdx.x] = odd * 10 + any;
}

__global__ void places(int* out) {
  const dim3 t = threadIdx, b = blockIdx;
  const unsigned block = b.x + gridDim.x * (b.y + gridDim.y * b.z);
  const unsigned thread = t.x + blockDim.x * (t.y + blockDim.y * t.z);
  atomicAdd(out + block * blockDim.x * blockDim.y * blockDim.z + thread, static_cast<int>(thread + 1));
}

}  // namespace

TOS_ENTRY provoke_divergent(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, divergent, 1, threads, 0, out); });
}
TOS_ENTRY provoke_two_barriers(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, two_barriers, 1, threads, 0, out); });
}
TOS_ENTRY provoke_absent_lane(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, absent_lane, 1, threads, 0, out); });
}
TOS_ENTRY provoke_foreign_mask(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, foreign_mask, 1, threads, 0, out); });
}
TOS_ENTRY provoke_neighbour(int64_t order, int64_t threads, int* out, int64_t safe) {
  return guarded([=] { launch(Order{order}, neighbour, 1, threads, 0, out, safe != 0); });
}
TOS_ENTRY provoke_count(int64_t order, int64_t threads, int* out, int64_t safe) {
  return guarded([=] { launch(Order{order}, count, 2, threads, 0, out, safe != 0); });
}
TOS_ENTRY provoke_unwritten(int64_t order, int64_t threads, float* out) {
  return guarded([=] { launch(Order{order}, unwritten, 2, threads, 0, out); });
}
TOS_ENTRY provoke_unwritten_dynamic(int64_t order, int64_t threads, float* out) {
  return guarded([=] { launch(Order{order}, unwritten_dynamic, 2, threads, size_t(threads) * 4, out); });
}
TOS_ENTRY provoke_overrun(int64_t order, int64_t threads) {
  return guarded([=] { launch(Order{order}, overrun, 1, threads, 64, 0); });
}
TOS_ENTRY provoke_misaligned(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, misaligned, 1, threads, 0, out); });
}
TOS_ENTRY provoke_collectives(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, collectives, 2, threads, 0, out); });
}
TOS_ENTRY provoke_halves(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, halves, 1, threads, 0, out); });
}
TOS_ENTRY provoke_votes(int64_t order, int64_t threads, int* out) {
  return guarded([=] { launch(Order{order}, votes, 1, threads, 0, out); });
}
TOS_ENTRY provoke_places(int64_t order, int* out) {
  return guarded([=] { launch(Order{order}, places, dim3(3, 2, 2), dim3(5, 3, 2), 0, out); });
}
TOS_ENTRY provoke_size(int64_t order, int64_t threads, int64_t shared) {
  return guarded([=] { launch(Order{order}, overrun, 1, threads, size_t(shared), 0); });
}
