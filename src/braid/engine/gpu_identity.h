#pragma once

#include <cstdint>
#include <string>

namespace braid {

// Facts that a job's GPUs share, and the identity of a single GPU.
struct GpuIdentity {
  std::string name;     // the maker's
  std::string kernels;  // "sm_90, driver 13.0"
  std::string uuid;
  int sms = 0;
  int64_t memory_bytes = 0;
  std::string pci;  // "0000:1b:00.0"
};

// The identity of a GPU visible to this process. Fails with kUnsupported or kResource without it.
GpuIdentity gpu_identity(int id);

// Makes the GPU the calling thread's, and starts it. Fails likewise.
void use_gpu(int id);

}  // namespace braid
