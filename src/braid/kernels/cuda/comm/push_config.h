#pragma once

#include <cstdint>
#include <string>

// Who carries a push between GPUs of one machine: descriptor -> config, pure data.
//
// Measured on four H200 as parts of steps: to one peer a kernel of all SMs is as fast as copy
// engines, to three 1.4 times as fast, and it is not asked for by way of the host. But it needs
// SMs, which copy engines leave to what computes.
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
