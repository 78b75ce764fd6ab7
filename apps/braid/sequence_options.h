#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "braid/engine/generate.h"

namespace braid::app {

// --torus-degree, --ulysses-degree and --ring-degree.
class DegreeOptions {
 public:
  // `when` begins their descriptions.
  void add_to(CLI::App& command, const std::string& when);
  // Those that were given; 0 is by the rule. Fails with kInvalidArgument, naming the option.
  SpRequest request() const;

 private:
  int torus_ = 0, ulysses_ = 0, ring_ = 0;
};

// Ranks that divide the tokens of a prompt, and on how many emulated machines ranks are.
class SequenceOptions {
 public:
  // --sp, --ranks, --machines and the degrees; the command has --tp already.
  void add_to(CLI::App& command);
  // What they ask for; of tensor parallelism, where --sp is not given, the machines. Without
  // --ranks --sp takes the GPUs of engine.device, or all of this machine's. Fails with
  // kInvalidArgument, naming the option, on those that do not go together.
  void apply(EngineConfig& engine, int gpus) const;
  // On GPUs --sp chooses the schedule, where --schedule is not given.
  void choose_schedule(EngineConfig& engine) const;

 private:
  std::string mode_;
  int ranks_ = 0;
  std::string machines_;
  DegreeOptions degrees_;
  const CLI::App* command_ = nullptr;  // says which were given
};

}  // namespace braid::app
