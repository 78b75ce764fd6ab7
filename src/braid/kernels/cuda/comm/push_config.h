#pragma once

#include <cstdint>
#include <string>

// Carrier of a push between GPUs of a machine: descriptor -> config, pure data.
//
// Measured on four H200 within steps: to a single peer, a kernel on all SMs is as fast as copy
// engines; to three peers 1.4 times as fast, and without a request to the host. But the kernel
// takes SMs from computation, and copy engines do not.
namespace braid::cuda {

constexpr int kMaxPushPieces = 48;

struct PushDesc {
  int64_t pieces = 0;  // blocks of rows
  int64_t bytes = 0;
  bool words = true;             // all addresses, rows and strides are multiples of 16 bytes
  bool across_machines = false;  // emulated: data go through host memory
  bool computes_beside = false;  // a launch that wants the SMs
};

struct PushConfig {
  int ctas = 0;  // of the kernel; 0: copy engines
  bool operator==(const PushConfig&) const = default;
};
std::string to_string(const PushConfig& config);  // "copy engines", "96 CTAs"

PushConfig choose(const PushDesc& desc, int sms);

}  // namespace braid::cuda
