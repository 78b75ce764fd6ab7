#pragma once

#include <cstdint>
#include <vector>

#include "braid/chat.h"
#include "braid/engine/loaded_model.h"

namespace braid::app {

// True if options give a prompt: standard input is then not read.
bool has_prompt(const RunOptions& options);

// Fails with kInvalidArgument on prompt options that exclude each other, before any model is
// read.
void check_prompt_options(const RunOptions& options);

// The prompt as token ids: from --prompt-ids, or from the text of -p, -f or standard input, which
// is a user's message with --chat. Fails with kInvalidArgument on text that is empty or not UTF-8,
// and on ids that are no numbers.
std::vector<int32_t> prompt_ids(const RunOptions& options, LoadedModel& loaded);

}  // namespace braid::app
