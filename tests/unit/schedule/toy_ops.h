#pragma once

#include <string>
#include <vector>

#include "braid/program/builder.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/plan.h"

// Ops whose cost is what a test says, and a profile under which it is seconds.
namespace braid::toy {

struct CostAttrs {
  double flops = 0, bytes = 0, wire_bytes = 0;
  bool operator==(const CostAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("flops", flops);
    f("bytes", bytes);
    f("wire_bytes", wire_bytes);
  }
};

inline std::vector<ValueType> infer(const Attrs&, TypeList in) {
  return {in[0]};
}
inline Cost cost(const Attrs& attrs, TypeList, TypeList, const Work&) {
  const auto& a = attrs.as<CostAttrs>();
  return {a.flops, a.bytes, a.wire_bytes};
}
inline ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return {{Placement::replicated()}, {Placement::replicated()}};
}
inline void reference(const OpCall&) {}

// Bound by computation; by memory, for it has no rate; communication of all ranks.
inline const OpDef kWork = {
    .kind = "work", .infer = infer, .cost = cost, .shard = shard, .reference = reference};
inline const OpDef kCopy = {
    .kind = "copy", .infer = infer, .cost = cost, .shard = shard, .reference = reference};
inline const OpDef kSend = {.kind = "send", .infer = infer, .cost = cost, .shard = shard};

// A FLOP, a byte and a byte on the wire take a second each; nothing else takes any.
inline Profile seconds_profile() {
  return {.name = "seconds",
          .memory_bytes_per_second = 1,
          .total_memory_bytes_per_second = 1,
          .unit_bytes_per_second = 1e12,
          .machine_link = {1, 0, false},
          .cluster_link = {1, 0, false},
          .rates = {{"work", "", Rate::Unit::flops, false, {{1, 1}}}}};
}

inline Topology machine_of(int devices) {
  Topology topology;
  topology.devices = devices;
  return topology;
}

struct Step {
  const OpDef* def;
  CostAttrs cost;
  Stream stream = Stream::compute;
  std::vector<int> waits;
  int reads = -1;  // the step whose output it reads; -1: the input
};

// One rank: a Program and its Schedule, launch i being step i.
struct Rank {
  Program program;
  Schedule schedule;
};
inline Rank rank_of(const std::vector<Step>& steps) {
  Builder b("toy", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {1, 1}, BatchAxis::token});
  std::vector<ValueId> made;
  Schedule schedule{.strategy = "toy", .micro_batches = {{b.capacity()}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const auto scope = b.scope("step" + std::to_string(i));
    made.push_back(b.op1(*step.def, Attrs::of(step.cost),
                         {step.reads < 0 ? x : made[static_cast<size_t>(step.reads)]}));
    std::vector<Wait> waits;
    for (int awaited : step.waits) waits.push_back({awaited});
    schedule.launches.push_back({.op = static_cast<int>(i),
                                 .stream = step.stream,
                                 .waits = waits,
                                 .kernel = {std::string(step.def->kind), 0}});
  }
  return {b.finish(made), std::move(schedule)};
}

// Ranks as the simulator wants them.
struct World {
  explicit World(const std::vector<Rank>& ranks) {
    for (const Rank& rank : ranks) {
      plan.programs.push_back(rank.program);
      plan.schedules.push_back(rank.schedule);
    }
  }
  Plan plan;
  std::vector<Work> works = {{.extents = {1, 1, 1}}};
};

}  // namespace braid::toy
