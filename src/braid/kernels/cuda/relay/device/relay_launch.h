#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"
#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

namespace braid::cuda {

struct RelayArgs;

// A relay: all layers of a decode step of one token, and the head, as a single launch. Each CTA
// reads its part of all weights and keys without a pause. Other CTAs take a CTA's results word by
// word, so no seam between steps waits for the slowest CTA's last write, or for a grid's end and
// the next grid's begin. Weights are read once, at about memory speed. Ranks exchange sums in the
// same way, word by word.
class Relay {
 public:
  // Whether the device runs all its CTAs at once. Loads the kernel: not within a capture.
  static bool fits(const RelayConfig& config, const DeviceInfo& device);

  struct Cache {
    void* k = nullptr;  // bf16 [slots, kv_heads, head_dim]
    void* v = nullptr;
    int64_t slots = 0;
    int64_t kv_heads = 0;
  };
  // Copies the steps to the device; memory behind the steps' pointers outlives the relay.
  // `caches` has K and V for each attending step, in step order; `tables` keeps memory that only
  // the steps point to. With summed steps, all ranks in `comm` (which outlives the relay) make
  // relays with equal steps, on devices of the same kind, in equal order. Allocates; not within a
  // capture.
  Relay(std::vector<RelayStep> steps, std::span<const Cache> caches,
        std::vector<std::shared_ptr<DeviceMemory>> tables, const RelayConfig& config,
        const int64_t* rows, int device, DeviceComm* comm);

  // Capturable. Launches of a relay run one after the other. A CTA that waits for another CTA for
  // some seconds ends the launch with a device error. A wait for another rank has the comm's
  // deadline, and a failure is reported like the comm's.
  void launch(const LaunchContext& context);

 private:
  void share(RelayArgs& args) const;

  const RelayConfig config_;
  const int64_t* const rows_;  // device memory: live tokens
  const int num_steps_;
  const std::vector<std::shared_ptr<DeviceMemory>> tables_;
  CudaMemory steps_;
  CudaMemory maps_;
  CudaMemory words_;  // zeros before the first launch
  int64_t mail_bytes_ = 0;
  DeviceComm* const comm_;
  int64_t sum_pairs_ = 0;           // 0: ranks share nothing
  int64_t put_bytes_ = 0;           // to each rank by a launch
  fabric::SymBuf<std::byte> sums_;  // {two bf16, tag} [2, ranks, sum_pairs]
};

}  // namespace braid::cuda
