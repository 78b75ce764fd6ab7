#pragma once

#include <string>
#include <string_view>

#include "braid/backend/device_spec.h"

namespace braid {

// GPU facts of this build and machine. CUDA versions are 1000 * major + 10 * minor.
struct GpuState {
  bool built = false;       // this build has CUDA
  int runtime_version = 0;  // of the build's CUDA
  int driver_version = 0;   // newest CUDA served by the driver; 0: no driver
  int gpus = 0;             // that can be used
  std::string first;        // "NVIDIA H100 80GB HBM3"
  std::string error;        // why CUDA counts none, in its own words
  bool hidden = false;      // CUDA_VISIBLE_DEVICES is set
};

GpuState gpu_state();

// Reason against every GPU: "this machine has no NVIDIA driver". Empty with a usable GPU.
std::string why_no_gpu(const GpuState& state);

// "13.0" of 13000.
std::string cuda_version(int version);

struct DeviceChoice {
  DeviceSpec device;
  std::string reason;  // why `auto` took the CPU; empty: it took GPUs, or was not asked
};

// The device for `ranks` ranks, as a user names it: "cpu", "cuda", "cuda:0,1", or "auto": the
// first GPUs if there are enough, otherwise the CPU. Fails with kInvalidArgument on any other
// text, with kUnsupported (this build) or kResource (this machine) and the cause for an
// unavailable GPU.
DeviceChoice choose_device(std::string_view text, int ranks, const GpuState& state);

// GPUs that a user may name: "cuda:0  NVIDIA H100 80GB HBM3, 79.6 GiB, 132 SMs", with the reason
// for an unusable GPU.
std::string describe_gpu(int id);

}  // namespace braid
