#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

// Differences between the CUDA toolkits from 12.4 to 13: each function here means the same with all
// toolkits.
namespace braid::cuda::toolkit {

// The place of a captured stream in its graph.
struct Capture {
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* after = nullptr;  // [count], nodes before the stream's next node
  size_t count = 0;
};

inline cudaError_t get_capture(cudaStream_t stream, Capture& c) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &c.status, nullptr, &c.graph, &c.after, nullptr,
                                  &c.count);
#else
  return cudaStreamGetCaptureInfo_v2(stream, &c.status, nullptr, &c.graph, &c.after, &c.count);
#endif
}

// The stream's next node comes after `node` alone.
inline cudaError_t continue_capture(cudaStream_t stream, cudaGraphNode_t node) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                             cudaStreamSetCaptureDependencies);
#else
  return cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies);
#endif
}

// A driver function as of `version` (12050 is CUDA 12.5), or with a toolkit before 12.5 as of the
// toolkit's version.
inline cudaError_t get_driver_function(const char* name, [[maybe_unused]] unsigned version,
                                       void** function, cudaDriverEntryPointQueryResult* found) {
#if CUDART_VERSION >= 12050
  return cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, found);
#else
  return cudaGetDriverEntryPoint(name, function, cudaEnableDefault, found);
#endif
}

// A GPU's parts have a multiple of this number of SMs. Headers before 13.0 lack the driver's
// number: the programming guide says 8 from Hopper on.
inline unsigned sm_step([[maybe_unused]] const CUdevResource& all,
                        [[maybe_unused]] int compute_major) {
#if CUDART_VERSION >= 13000
  return std::max(all.sm.minSmPartitionSize, all.sm.smCoscheduledAlignment);
#else
  return compute_major >= 9 ? 8 : 4;
#endif
}

// Groups of SMs that hold the largest clusters: headers before 12.5 have no name for the flag.
#if CUDART_VERSION >= 12050
inline constexpr unsigned kSplitForClusters = CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
using GreenStreamCreate = decltype(cuGreenCtxStreamCreate);
#else
inline constexpr unsigned kSplitForClusters = 0x2;
using GreenStreamCreate = CUresult(CUstream*, CUgreenCtx, unsigned, int);
#endif

}  // namespace braid::cuda::toolkit
