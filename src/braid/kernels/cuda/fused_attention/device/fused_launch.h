#pragma once

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/fused_attention/device/fused_args.h"
#include "braid/kernels/cuda/fused_attention/fused_config.h"

namespace braid::cuda {

// What the GPU runs at once of clusters of each size, asked of the driver. Loads a kernel: not
// within a capture.
FusedDevice fused_device(const DeviceInfo& device, int head_dim);

// A fused attention block of one layer (fused_config.h).
class FusedAttention {
 public:
  // `operands` are the pointers and numbers of FusedArgs that say what is computed; maps, words,
  // mail and everything that follows from shape and config are set here. Allocates; not within a
  // capture.
  FusedAttention(const FusedShape& shape, const FusedConfig& config, const FusedArgs& operands,
                 int device);

  // Capturable. Launches of one block run one after the other. A CTA that waits for words in vain
  // for some seconds ends the launch with an error of the device. Copies of a producer that are on
  // their way: `in_flight`, and `in_flight_words` while words are.
  void launch(const LaunchContext& context) const;
  void set_in_flight(int in_flight, int in_flight_words);

 private:
  const FusedConfig config_;
  const int head_dim_;
  FusedArgs args_;
  CudaMemory words_;  // zeros before the first launch
  CudaMemory mail_;
};

}  // namespace braid::cuda
