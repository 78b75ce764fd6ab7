#include "braid/engine/sequence_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

bool shares_gpu(const DeviceSpec& device) {
  std::vector<int> ids = device.ids;
  std::ranges::sort(ids);
  return std::ranges::adjacent_find(ids) != ids.end();
}

}  // namespace

void SequenceRequest::apply(EngineConfig& engine, int gpus) const {
  engine.thinning = thinning;
  if (mode.empty()) {
    if (machines.empty()) return;
    const Topology topology = parse_topology(machines);
    if (tp_named && engine.tp != topology.ranks()) {
      fail(ErrorCode::kInvalidArgument, "--tp is {}, --machines {} are {}", engine.tp, machines,
           topology.ranks());
    }
    engine.tp = topology.ranks();
    engine.links.machines = topology.machines;
    engine.links.racks = topology.racks;
    return;
  }
  if (tp_named) {
    fail(ErrorCode::kInvalidArgument,
         "--sp and --tp both say how ranks divide the work: wanted one of them");
  }
  SequenceParallel sp{.degrees = degrees};
  Topology topology{.machines = 1, .devices = ranks.value_or(0)};
  if (!machines.empty()) {
    topology = parse_topology(machines);
    if (ranks.value_or(0) != 0 && *ranks != topology.ranks()) {
      fail(ErrorCode::kInvalidArgument, "--ranks is {}, --machines {} are {}", *ranks, machines,
           topology.ranks());
    }
  } else if (!ranks) {
    topology.devices =
        engine.device.ids.empty() ? gpus : static_cast<int>(engine.device.ids.size());
    if (topology.devices == 0) {
      fail(ErrorCode::kInvalidArgument,
           "--sp {} divides a prompt over ranks, and there is no GPU to be one: --ranks N says how "
           "many, as threads of the CPU",
           mode);
    }
  }
  if (mode != "auto") sp.mode = parse_sp_mode(mode);
  engine.sp = sp;
  engine.tp = topology.ranks();
  engine.links.machines = topology.machines;
  engine.links.racks = topology.racks;
}

void SequenceRequest::choose_schedule(EngineConfig& engine) const {
  if (!engine.sp || !engine.device.cuda) return;
  if (shares_gpu(engine.device)) {
    // Streams of several ranks share a GPU's queues, and a copy may stand behind its own reader.
    // Of a strategy in a library nothing is known.
    if (!schedule_named || engine.schedule == "auto") engine.schedule = "sequential";
    if (engine.schedule != "sequential" && !is_strategy_file(engine.schedule)) {
      fail(
          ErrorCode::kInvalidArgument,
          "--schedule {} with --sp on ranks that share a GPU (cuda:{}): a copy may wait behind its "
          "own reader; wanted sequential or auto",
          engine.schedule, fmt::join(engine.device.ids, ","));
    }
  } else if (!schedule_named) {
    // GPUs move data while computing; on a CPU moving takes threads, perhaps without any to spare.
    engine.schedule = "sequence_parallel";
  }
}

}  // namespace braid
