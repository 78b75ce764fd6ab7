#pragma once

#include <cstdint>
#include <string>

namespace braid::cuda {

// A GPU's facts for planning and for choices of kernels.
struct DeviceInfo {
  int id = 0;
  std::string name;
  int compute_capability = 0;  // as of code_capability()
  int num_sms = 0;
  int64_t memory_bytes = 0;
  int64_t shared_memory_per_sm = 0;
  int64_t shared_memory_per_cta = 0;  // on request
};

// GPUs that this process sees; 0 without a driver.
int device_count();

// 10 * major + minor of the code that runs on the thread's device: 90 on Hopper, 80 on every other
// GPU and in builds without code for Hopper. Kernels are chosen by this number: older code has no
// clusters, bulk copies, or early starts.
int code_capability();

// Fails with kResource without such a GPU, listing the machine's GPUs.
DeviceInfo device_info(int id);

// Makes a device the calling thread's, until the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int id);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace braid::cuda
