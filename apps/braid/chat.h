#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/chat_prompt.h"
#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/sampling_options.h"
#include "braid/schema_option.h"
#include "braid/speed.h"

namespace braid::app {

struct RunOptions {
  ModelOption model;
  SamplingOptions sampling;
  SchemaOption schema;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::optional<std::string> prompt_ids;
  std::optional<std::string> system;
  std::optional<int64_t> tokens;
  bool parse_special = false;
  std::optional<int64_t> context;
  bool chat = false;
  bool json = false;
  ParallelOptions parallel;
  Request request;
};

// A chat in the terminal (docs/guide/chat.md): reads messages and answers, until the end of input.
// A model without a chat template continues the written text.
void chat_loop(const RunOptions& options, LoadedModel& loaded, Generator& generator,
               ParallelRun& parallel);

}  // namespace braid::app
