#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "braid/engine/sequence_request.h"
#include "braid/level_options.h"

namespace braid::app {

// --torus-degree, --ulysses-degree and --ring-degree.
class DegreeOptions {
 public:
  // `when` begins their descriptions.
  void add_to(CLI::App& command, const std::string& when);
  // The given degrees; 0 follows the rule. Fails with kInvalidArgument, naming the option.
  SpRequest request() const;

 private:
  int torus_ = 0, ulysses_ = 0, ring_ = 0;
};

// Ranks that divide a prompt's tokens, and the number of emulated machines.
class SequenceOptions {
 public:
  // --sp, --ranks, --machines and the degrees; the command has --tp already.
  void add_to(CLI::App& command);
  // The given options. Fails with kInvalidArgument, naming the option, on an option for --sp alone.
  SequenceRequest request() const;

 private:
  std::string mode_;
  int ranks_ = 0;
  std::string machines_;
  DegreeOptions degrees_;
  LevelOptions levels_;
  const CLI::App* command_ = nullptr;  // says which were given
};

}  // namespace braid::app
