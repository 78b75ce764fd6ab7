#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "braid/engine/attention/attention_modes.h"
#include "braid/schedule/profile.h"

namespace braid::attention_modes {

// Bytes/s each way between two ranks, both ways at once, by LinkClass; 0 where the topology has no
// such link.
struct LinkSpeed {
  PerLink<double> blocks{};
  PerLink<double> rows{};     // for half the heads, as lowerings move heads
  PerLink<double> seconds{};  // for a transfer of 4 KiB

  // The links' best rates with `gbps` between machines (0: not paced).
  PerLink<LinkProfile> paced(double gbps) const {
    PerLink<LinkProfile> links;
    for (size_t i = 0; i < 3; ++i) links[i] = {blocks[i], seconds[i]};
    double& cluster = links[LinkClass::cluster].bytes_per_second;
    if (gbps > 0 && cluster > 0) cluster = std::min(cluster, gbps * 1e9);
    return links;
  }
};

// The modes of sequence-parallel attention on the GPUs of this machine, bf16, a rank on each;
// several machines are emulated, with links through pinned host memory.
class CudaModes {
 public:
  virtual ~CudaModes() = default;
  virtual const LinkSpeed& links() const = 0;
  // Times are of consecutive graphs, attention's from the same step; in turns with the step without
  // communication and with a single call over the same work; all medians of `repetitions`.
  virtual ModeReport measure(SpMode mode) = 0;
};

// Fails with kUnsupported in a build without CUDA, with kResource with too few
// GPUs.
std::unique_ptr<CudaModes> make_cuda_modes(const AttentionBench& bench, const Topology& topology);

}  // namespace braid::attention_modes
