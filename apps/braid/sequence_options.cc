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
      .add_option(
          "--machines", machines_,
          "[RACKSx]MACHINESxDEVICES in place of --tp, or with --sp of --ranks; machines are "
          "emulated")
      ->group(kEmulation);
  degrees_.add_to(command, "with --sp: ");
  levels_.add_to(command, "without --sp a prompt has the parts of the last group's ranks, or of 8");
}

SequenceRequest SequenceOptions::request() const {
  for (const char* name : kWithSp) {
    if (!mode_.empty() || command_->count(name) == 0) continue;
    fail(ErrorCode::kInvalidArgument, "{} goes with --sp, which names how ranks divide a prompt",
         name);
  }
  SequenceRequest request{.mode = mode_,
                          .machines = machines_,
                          .tp_named = command_->count("--tp") > 0,
                          .schedule_named = command_->count("--schedule") > 0};
  if (command_->count("--ranks") > 0) request.ranks = ranks_;
  request.thinning = levels_.request();
  if (!mode_.empty()) request.degrees = degrees_.request();
  return request;
}

}  // namespace braid::app
