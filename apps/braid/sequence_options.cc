#include "braid/sequence_options.h"

#include "braid/options.h"

namespace braid::app {
namespace {

constexpr const char* kWithSp[] = {"--ranks", "--torus-degree", "--ulysses-degree",
                                   "--ring-degree"};

}  // namespace

void DegreeOptions::add_to(CLI::App& command, const std::string& when) {
  command.add_option("--torus-degree", torus_, when + "ranks of the torus (0: by the rule)")
      ->group(kRanks);
  command
      .add_option("--ulysses-degree", ulysses_, when + "ranks that exchange heads (0: by the rule)")
      ->group(kRanks);
  command.add_option("--ring-degree", ring_, when + "ranks of a ring (0: by the rule)")
      ->group(kRanks);
}

SpRequest DegreeOptions::request() const {
  const auto pinned = [](const char* option, int degree) {
    require_between(option, degree, 0, 4096);
    return degree > 0 ? std::optional(degree) : std::nullopt;
  };
  return {.torus = pinned("--torus-degree", torus_),
          .ulysses = pinned("--ulysses-degree", ulysses_),
          .ring = pinned("--ring-degree", ring_)};
}

void SequenceOptions::add_to(CLI::App& command) {
  command_ = &command;
  command
      .add_option("--sp", mode_,
                  "ranks divide the tokens of a prompt, not the weights: ring, ulysses, usp, "
                  "tas, torus or auto")
      ->group(kRanks);
  command.add_option("--ranks", ranks_, "with --sp: ranks (default: one for each GPU of --device)")
      ->group(kRanks);
  command
      .add_option("--machines", machines_,
                  "MACHINESxDEVICES in place of --tp, or with --sp of --ranks; machines are "
                  "emulated")
      ->group(kEmulation);
  degrees_.add_to(command, "with --sp: ");
}

void SequenceOptions::apply(EngineConfig& engine, int gpus) const {
  if (mode_.empty()) {
    for (const char* name : kWithSp) {
      if (command_->count(name) == 0) continue;
      fail(ErrorCode::kInvalidArgument, "{} goes with --sp, which names how ranks divide a prompt",
           name);
    }
    if (machines_.empty()) return;
    const Topology topology = parse_topology(machines_);
    if (command_->count("--tp") > 0 && engine.tp != topology.ranks()) {
      fail(ErrorCode::kInvalidArgument, "--tp is {}, --machines {} are {}", engine.tp, machines_,
           topology.ranks());
    }
    engine.tp = topology.ranks();
    engine.links.machines = topology.machines;
    return;
  }
  if (command_->count("--tp") > 0) {
    fail(ErrorCode::kInvalidArgument,
         "--sp and --tp both say how ranks divide the work: wanted one of them");
  }
  SequenceParallel sp{.degrees = degrees_.request()};
  Topology topology{.machines = 1, .devices = ranks_};
  if (!machines_.empty()) {
    topology = parse_topology(machines_);
    if (ranks_ != 0 && ranks_ != topology.ranks()) {
      fail(ErrorCode::kInvalidArgument, "--ranks is {}, --machines {} are {}", ranks_, machines_,
           topology.ranks());
    }
  } else if (command_->count("--ranks") == 0) {
    topology.devices =
        engine.device.ids.empty() ? gpus : static_cast<int>(engine.device.ids.size());
    if (topology.devices == 0) {
      fail(ErrorCode::kInvalidArgument,
           "--sp {} divides a prompt over ranks, and there is no GPU to be one: --ranks N says how "
           "many, as threads of the CPU",
           mode_);
    }
  }
  if (mode_ != "auto") sp.mode = parse_sp_mode(mode_);
  engine.sp = sp;
  engine.tp = topology.ranks();
  engine.links.machines = topology.machines;
}

void SequenceOptions::choose_schedule(EngineConfig& engine) const {
  // GPUs move while they compute; on a CPU that takes threads, of which there may be none to spare.
  if (engine.sp && engine.device.cuda && command_->count("--schedule") == 0) {
    engine.schedule = "sequence_parallel";
  }
}

}  // namespace braid::app
