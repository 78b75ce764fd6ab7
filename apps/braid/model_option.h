#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace braid::app {

// The model that a command works on, as a user names it.
class ModelOption {
 public:
  // -m.
  void add_to(CLI::App& command);
  // The model as first argument, too. `what` describes the arguments that may follow it; empty:
  // none may.
  void add_with_argument(CLI::App& command, const std::string& what = "");

  bool named() const { return !name_.empty() || !words_.empty(); }
  // Its path (io/model_lookup.h); without a name the demo model, which a line on standard error
  // says. Fails as find_model does, and where there is no demo model, saying how to get one.
  std::string path() const;
  // The arguments after the model, or all where -m names it. Fails with kInvalidArgument where
  // there are more than `most`.
  std::vector<std::string> rest(size_t most) const;

 private:
  std::string name_;
  std::vector<std::string> words_;
};

}  // namespace braid::app
