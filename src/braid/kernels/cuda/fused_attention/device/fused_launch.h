#pragma once

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/fused_attention/device/fused_kernels.h"
#include "braid/kernels/cuda/fused_attention/fused_config.h"

namespace braid::cuda {

// Clusters, by size, that the GPU runs at once, from the driver. Loads a kernel: not within a
// capture.
FusedDevice fused_device(const DeviceInfo& device, int head_dim);

// A fused attention block of a layer (fused_config.h).
class FusedAttention {
 public:
  // `operands` has the pointers and numbers in FusedArgs that describe the computation; the
  // constructor sets maps, words, mail and all that follows from shape and config. Allocates; not
  // within a capture.
  FusedAttention(const FusedShape& shape, const FusedConfig& config, const FusedArgs& operands,
                 int device);

  // Capturable. Launches of a block run one after the other. A CTA that waits for words in vain for
  // some seconds ends the launch with a device error. A producer has `in_flight` copies under way,
  // and `in_flight_words` while words travel.
  void launch(const LaunchContext& context) const;
  void set_in_flight(int in_flight, int in_flight_words);

 private:
  const FusedConfig config_;
  const FusedKernel kernel_;
  FusedArgs args_;
  CudaMemory words_;  // zeros before the first launch
  CudaMemory mail_;
  CudaMemory parts_;  // words between parts of a KV head, likewise
};

}  // namespace braid::cuda
