#pragma once

#include <memory>
#include <vector>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/handles.h"

struct CUgreenCtx_st;

namespace braid::cuda {

// A part of a GPU's SMs: the kernels of its streams run on these alone. Ranks that share a GPU are
// given one each, so that a kernel which waits for another rank's never holds the SMs that one
// needs. It outlives its streams. Memory, copies and the host's time are shared as ever.
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
// granularity allows: 64 of an H200's 132 SMs where two share it. Null for a rank that has a GPU
// alone. Fails with kUnsupported where so many ranks cannot share one (on Hopper a part has 24 SMs
// at least), or the driver has no parts (CUDA 12.5).
std::vector<OwnedPartition> divide_gpus(const std::vector<int>& devices);

// What a rank has of its GPU: all of it without a part.
DeviceInfo device_info(int id, const SmPartition* part);

}  // namespace braid::cuda
