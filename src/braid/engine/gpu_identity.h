#pragma once

#include <cstdint>
#include <string>

namespace braid {

// What the GPUs of a job have in common, and what tells a GPU from all others.
struct GpuIdentity {
  std::string name;     // the maker's
  std::string kernels;  // "sm_90, driver 13.0"
  std::string uuid;
  int sms = 0;
  int64_t memory_bytes = 0;
};

// Of a GPU that this process sees. Fails with kUnsupported or kResource without such a GPU.
GpuIdentity gpu_identity(int id);

}  // namespace braid
