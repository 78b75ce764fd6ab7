#pragma once

#include <memory>
#include <vector>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/handles.h"

struct CUgreenCtx_st;

namespace braid::cuda {

// A part of a GPU's SMs: kernels in the part's streams run on these SMs alone. Ranks that share a
// GPU get a part each, so a kernel waiting for another rank never holds the other rank's SMs.
// Outlives its streams. Memory, copies and host time stay shared.
class SmPartition {
 public:
  SmPartition(CUgreenCtx_st* context, int num_sms);  // takes over the green context

  int num_sms() const { return num_sms_; }
  OwnedStream make_stream(bool urgent = false) const;  // as cuda::make_stream

 private:
  const std::shared_ptr<CUgreenCtx_st> context_;
  const int num_sms_;
};

using OwnedPartition = std::unique_ptr<SmPartition>;

// The parts of the ranks on these GPUs ([ranks] of CUDA ordinals), as large as the GPU's
// granularity allows: 64 of an H200's 132 SMs for two ranks. Null for a rank with a whole GPU.
// Fails with kUnsupported if so many ranks cannot share a GPU (on Hopper a part has at least 24
// SMs), or if the driver has no parts (CUDA 12.5).
std::vector<OwnedPartition> divide_gpus(const std::vector<int>& devices);

// A rank's share in its GPU: the whole GPU without a part.
DeviceInfo device_info(int id, const SmPartition* part);

}  // namespace braid::cuda
