#pragma once

// A function that runs on the CPU and, where nvcc compiles it, on a device.
#ifdef __CUDACC__
#define TOS_PORTABLE __host__ __device__ inline
#else
#define TOS_PORTABLE inline
#endif
