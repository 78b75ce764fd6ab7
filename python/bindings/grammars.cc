#include "bindings/grammars.h"

#include <nlohmann/json.hpp>

#include "braid/grammar/grammar_tag.h"
#include "braid/io/json_text.h"
#include "braid/text/prompt_marks.h"

namespace braid::python {
namespace {

std::string tag_of(const AnswerFormat& format) {
  const auto& [kind, text] = format;
  if (kind == "regex") return regex_tag(text);
  if (kind == "grammar") return ebnf_tag(text);
  parse_json(text, kind);  // strictly: duplicate keys, depth, range of numbers
  const auto json = nlohmann::ordered_json::parse(text);
  return kind == "choice" ? choice_tag(json) : schema_tag(json);
}

}  // namespace

std::shared_ptr<GrammarStore> Grammars::store(const Engine& engine) {
  const std::lock_guard lock(mutex_);
  if (!store_) {
    store_ = std::make_shared<GrammarStore>(engine.loaded().tokenizer, engine.model_config().V,
                                            GrammarConfig{.program = helper_});
  }
  return store_;
}

TokenMask Grammars::mask(const Engine& engine, const AnswerFormat& format,
                         std::span<const int32_t> prompt, bool chat,
                         const Engine::KeepWaiting& keep_waiting) {
  const std::string tag = tag_of(format);
  const std::shared_ptr<GrammarStore> store = this->store(engine);
  const LoadedModel& loaded = engine.loaded();
  ReasoningMarks marks;
  if (const auto source = chat_template_source(loaded.model.file()); chat && source)
    marks = marks_behind(reasoning_marks(*source), loaded.tokenizer, prompt);
  return
      [store, mask = grammar_mask(store->compile_now(tag, keep_waiting), store->spelling(), marks)](
          std::span<const int32_t> answer) { return mask(answer); };
}

}  // namespace braid::python
