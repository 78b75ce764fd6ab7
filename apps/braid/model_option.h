#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace braid::app {

// A command's model, as named by a user.
class ModelOption {
 public:
  // -m.
  void add_to(CLI::App& command);
  // Takes the model as first argument, too. `what` describes arguments after the model; empty:
  // none.
  void add_with_argument(CLI::App& command, const std::string& what = "");

  bool named() const { return !name_.empty() || !words_.empty(); }
  // The model's path (io/model_lookup.h); without a name the demo model, with a line on standard
  // error. Fails as find_model does, and without a demo model, saying how to get the model.
  std::string path() const;
  // The arguments after the model, or all arguments with -m. Fails with kInvalidArgument for more
  // than `most`.
  std::vector<std::string> rest(size_t most) const;

 private:
  std::string name_;
  std::vector<std::string> words_;
};

}  // namespace braid::app
