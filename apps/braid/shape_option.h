#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "braid/engine/loaded_model.h"
#include "braid/model/model_shape.h"

namespace braid::app {

// A model with random weights: its shape in place of -m, to measure without a download.
class ShapeOption {
 public:
  void add_to(CLI::App& command);

  bool named() const { return !config_.empty(); }
  bool random() const { return random_; }
  const std::string& path() const { return config_; }
  // Fails with kInvalidArgument on options that do not go together, as read_model_shape does.
  ModelShape read() const;
  // Opens read() with the tokenizer and chat template of the model that `tokenizer` names. Fails
  // with kInvalidArgument without a name, and as read() and find_model do.
  std::function<std::unique_ptr<LoadedModel>()> opener(const std::string& tokenizer) const;
  // Fails if options for a shape stand beside -m.
  void require_none() const;

 private:
  std::string config_;
  bool random_ = false;
  std::string weights_;  // their type; "": bf16
  int64_t layers_ = 0;   // 0: all
};

}  // namespace braid::app
