#pragma once

#include "braid/kernels/cuda/bind.h"
#include "braid/ops/latent_attention.h"

namespace braid::cuda {

// Binds the plain form of latent_attention. Weights made here stay for all launches that read
// them.
class LatentPlain {
 public:
  // Whether the call takes the form, and its scratch.
  static bool takes(const ops::LatentAttentionAttrs& attrs, TypeList in);
  static int64_t workspace_bytes(const ops::LatentAttentionAttrs& attrs, TypeList in);

  BoundKernel bind(const LaunchArgs& args);

 private:
  std::shared_ptr<DeviceMemory> weight(const LaunchArgs& args, const ops::LatentSizes& n,
                                       bool transposed);

  std::map<std::pair<int, const std::byte*>, std::shared_ptr<DeviceMemory>> weights_;
  Scratch counters_;
};

}  // namespace braid::cuda
