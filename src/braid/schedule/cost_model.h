#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/schedule/profile.h"

namespace braid {

// A launch's cost alone on a device. Its parts run beside each other: the longest time
// counts.
struct LaunchCost {
  Cost work;
  double fixed = 0;    // seconds that take nothing others could use: the launch itself
  double latency = 0;  // seconds that messages are under way, whatever their size
  double compute = 0;  // seconds of `units`
  double memory = 0;   // seconds of memory at the kernel's bandwidth
  double machine = 0;  // seconds on the rank's port to its machine
  double cluster = 0;  // seconds of the rank's port to other machines
  double rack = 0;     // seconds of the uplink to other racks (Profile::rack_link)
  double units = 1;    // units kept busy by computing, or by copying and adding
  int ranks = 1;       // ranks that run the launch together
  double tiles = 0;    // for an op that sends tiles while computing the next

  struct Transfer {
    int from = 0;  // ranks
    int to = 0;
    bool cluster = false;  // between machines
    double seconds = 0;    // for both ends' ports
    double rack = 0;       // seconds for both racks' uplinks
  };
  std::vector<Transfer> transfers;  // for a one-sided op, and for results stored at peers

  double body() const { return compute > memory ? compute : memory; }
  double wire() const { return std::max({machine, cluster, rack}); }
  // The longer part, plus a tile of the shorter before or after.
  double pipelined() const;
  double seconds() const { return fixed + latency + pipelined(); }
  // Another op in the same launch.
  LaunchCost& operator+=(const LaunchCost& other);
};

// The same launch with free communication: nothing for an op that only communicates, all
// computation for another op.
LaunchCost without_communication(const Op& op, LaunchCost cost);

// Prices launches by a profile: a roofline with rates as functions of the op's kind, the dtype of
// its weight or KV cache, and its rows, as far as measured. Immutable; any thread may ask.
//
// In a collective every rank sends wire_bytes evenly to the others. all_reduce takes the cheaper of
// a single shot and two shots. A group with P ranks is P neighbours in the Topology.
class CostModel {
 public:
  // The Topology's links count if they have a speed, otherwise the profile's.
  CostModel(Profile profile, const Topology& topology);

  const Profile& profile() const { return profile_; }
  const Topology& topology() const { return topology_; }
  // The link between ranks as it is priced.
  const LinkProfile& machine_link() const { return profile_.machine_link; }
  const LinkProfile& cluster_link() const { return profile_.cluster_link; }
  // Null: links between racks are cluster_link(), or there is one rack.
  const LinkProfile* rack_link() const {
    return topology_.racks > 1 && profile_.rack_link ? &*profile_.rack_link : nullptr;
  }

  // `work` covers all the launch's micro-batches. The extent `shard` in `work` is ignored: `rank`
  // has its part of the tokens.
  LaunchCost price(const Program& program, const Op& op, const Work& work,
                   Stream stream = Stream::compute, int rank = 0) const;
  double seconds(const Program& program, const Op& op, const Work& work,
                 Stream stream = Stream::compute) const {
    return price(program, op, work, stream).seconds();
  }

  // "linear layers.0.mlp q4_1: 12.4 MFLOP, 1.3 MB, 0 B wire, 8 rows: compute 41.2 us".
  std::string explain(const Program& program, const Op& op, const Work& work,
                      Stream stream = Stream::compute) const;

 private:
  void add_computation(LaunchCost& cost, const Op& op, TypeList in, const Work& work) const;
  void add_communication(LaunchCost& cost, const Op& op, Stream stream) const;
  void add_transfers(LaunchCost& cost, const Op& op, TypeList in, const Work& work, int rank) const;

  Profile profile_;
  Topology topology_;
};

// Ranks in a communication op; 1 for any other op, `world` for an op from a user's library.
int communicating_ranks(const Op& op, int world);

}  // namespace braid
