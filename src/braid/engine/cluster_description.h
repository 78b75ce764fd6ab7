#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/engine/mesh_choice.h"
#include "braid/engine/thinning.h"
#include "braid/schedule/profile.h"

namespace braid {

// A rank's place. Ranks of a job are equal in all but host and, on CPUs, memory: otherwise their
// plans would differ.
struct RankDescription {
  std::string host;
  std::string device = "cpu";    // or the GPU's name
  int64_t units = 1;             // threads for a CPU rank, SMs for a GPU
  std::string kernels;           // instruction sets: "avx512, avx512-vnni"
  int64_t memory_bytes = 0;      // memory on the host, or on the GPU
  std::string build;             // build_id()
  std::string strategy_library;  // hash of the strategy's library; empty: Braid's own strategy
  bool operator==(const RankDescription&) const = default;
};

// Pure data from which plans follow: every process of a job has the same, and plans for all ranks
// from nothing else. A file of this form lets `braid plan` and `braid bench attention` plan for
// a cluster elsewhere (docs/cluster.md).
struct ClusterDescription {
  std::vector<RankDescription> ranks;  // [ranks], machine by machine
  int machines = 1;                    // of equal size
  int racks = 1;                       // of equal size; they divide the machines
  bool mapped = false;                 // kernels store into the memory of their machine's ranks
  std::optional<Profile> profile;      // process 0's, by which `auto` prices
  std::string schedule = "sequential";
  std::optional<SequenceParallel> sp;
  Thinning thinning;  // of prompts
  int ep = 1, dp = 1;
  int64_t expert_memory = kExpertMemory;  // of a LayoutPlan
  bool communication = true;
  CacheShape cache;
  std::string model;  // its size and hash; empty: any

  int ranks_count() const { return static_cast<int>(ranks.size()); }
  Topology topology() const;
};

// Fails with kInvalidArgument, naming two ranks, hosts and both values, where ranks would plan
// differently: other devices, units, kernels, builds or strategy libraries, GPUs with other memory.
void require_alike(const ClusterDescription& cluster);

// JSON and back. Parsing fails with kMalformed: `origin`, the field, its value and the limit.
std::string to_json(const ClusterDescription& cluster);
ClusterDescription parse_cluster(std::string_view json, const std::string& origin);
// A file of the same form; fails with kNotFound without the file.
ClusterDescription read_cluster(const std::string& path);

}  // namespace braid
