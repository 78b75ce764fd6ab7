#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "braid/engine/engine.h"
#include "braid/grammar/grammar_store.h"

namespace braid::python {

// What an answer has to be: "schema" and JSON, "regex" and a pattern, "choice" and a JSON list of
// texts, or "grammar" and EBNF with the rule `root`.
using AnswerFormat = std::pair<std::string, std::string>;

// The grammars of an engine's model, made by a helper program. For several threads.
class Grammars {
 public:
  explicit Grammars(std::string helper) : helper_(std::move(helper)) {}

  // Masks for one answer to `prompt`; compiles where the format is new. `chat`: the prompt is a
  // conversation's, so that reasoning may come first. Fails with kUnsupported in a build without
  // grammars, with kInvalidArgument where the format cannot be kept or takes too much to compile.
  TokenMask mask(const Engine& engine, const AnswerFormat& format, std::span<const int32_t> prompt,
                 bool chat, const Engine::KeepWaiting& keep_waiting);

 private:
  std::shared_ptr<GrammarStore> store(const Engine& engine);

  const std::string helper_;
  std::mutex mutex_;
  std::shared_ptr<GrammarStore> store_;  // from the first format on; masks hold it, too
};

}  // namespace braid::python
