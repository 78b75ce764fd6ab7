#pragma once

// Marks inline functions shared by kernels and the host; without nvcc, only the host has them.
#ifdef __CUDACC__
#define BRAID_HOST_DEVICE __host__ __device__ inline
#else
#define BRAID_HOST_DEVICE inline
#endif
