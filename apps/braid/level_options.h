#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "braid/engine/thinning.h"

namespace braid::app {

// --keep, --levels, --importance and --drop-queries: prompts whose attention leaves far keys out.
class LevelOptions {
 public:
  // `parts` ends the description of --levels: which parts a prompt has without that option.
  void add_to(CLI::App& command, const std::string& parts);
  // The given options. Fails with kInvalidArgument, naming the option, on a value of the wrong
  // form, and on an option for --keep alone. levels_of() checks shares and groups against ranks.
  Thinning request() const;

 private:
  std::string keep_, levels_;
  std::string importance_ = "own";
  bool drop_queries_ = false;
  const CLI::App* command_ = nullptr;  // says which were given
};

}  // namespace braid::app
