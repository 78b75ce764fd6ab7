#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

// Devices of the ranks, as a user names them: "cpu", "cuda" (GPUs 0..ranks-1), "cuda:2,0" (rank 0
// on GPU 2, rank 1 on GPU 0). Ranks on the same GPU ("cuda:0,0") divide its SMs.
struct DeviceSpec {
  bool cuda = false;
  std::vector<int> ids;           // empty: the first ones
  int num_gpus(int ranks) const;  // GPUs under `ranks` ranks
  int first_gpu() const { return ids.empty() ? 0 : ids.front(); }
  bool operator==(const DeviceSpec&) const = default;
};

// Fails with kInvalidArgument, naming the allowed forms.
DeviceSpec parse_device(std::string_view text);

}  // namespace braid
