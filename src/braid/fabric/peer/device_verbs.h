#pragma once

#include <cstdint>
#include <vector>

#include "braid/fabric/link.h"
#include "braid/fabric/peer/wait_report.h"

namespace braid::fabric {

// Facts that a rank's kernels need from any fabric of GPUs. All pointers are addresses for this
// rank's kernels, and live as long as the fabric.
struct DeviceVerbs {
  int rank = 0;
  int device = 0;                     // CUDA ordinal in this process
  bool shares_gpu = false;            // another rank computes on the same GPU
  uint64_t deadline_ns = 0;           // of each wait in a kernel
  std::vector<LinkClass> links;       // [world] from this rank
  std::vector<PeerControl*> control;  // [world] abort words, at each rank; null without a path
  WaitReport* report = nullptr;       // pinned host memory, this rank's
};

}  // namespace braid::fabric
