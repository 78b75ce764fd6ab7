#pragma once

// Marks inline functions that kernels and the host share; without nvcc they are the host's alone.
#ifdef __CUDACC__
#define BRAID_HOST_DEVICE __host__ __device__ inline
#else
#define BRAID_HOST_DEVICE inline
#endif
