#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/grammar/grammar_store.h"

namespace braid::app {

// --schema FILE and --json-schema TEXT: the answer is JSON that fulfils a schema.
class SchemaOption {
 public:
  void add_to(CLI::App& command);
  bool given() const { return file_ || text_; }
  // Fails with kInvalidArgument where both options are given, or the schema is no JSON or has words
  // that cannot be kept.
  void check();

  // Masks for the answer to `prompt`; this option outlives them. Compiles the schema. `chat`: the
  // prompt is a conversation's, so that reasoning may come first. Fails with kUnsupported in a
  // build without grammars, with kInvalidArgument where the schema takes too much to compile.
  TokenMask mask(const LoadedModel& loaded, std::span<const int32_t> prompt, bool chat);

 private:
  std::optional<std::string> file_, text_;
  std::string tag_;
  std::unique_ptr<GrammarStore> store_;
};

}  // namespace braid::app
