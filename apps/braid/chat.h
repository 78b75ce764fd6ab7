#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/chat_prompt.h"
#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/options.h"

namespace braid::app {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::optional<std::string> prompt_ids;
  std::optional<std::string> system;
  std::optional<int64_t> tokens;
  bool parse_special = false;
  bool chat = false;
  bool json = false;
  ParallelOptions parallel;
  Request request;
};

// Reads a message a line from the terminal and answers, until the end of input.
void chat_loop(const RunOptions& options, LoadedModel& loaded, Engine& engine);

}  // namespace braid::app
