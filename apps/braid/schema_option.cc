#include "braid/schema_option.h"

#include "braid/grammar/grammar_tag.h"
#include "braid/io/json_text.h"
#include "braid/text/prompt_marks.h"
#include "braid/text_io.h"

namespace braid::app {

void SchemaOption::add_to(CLI::App& command) {
  command.add_option("--schema,--json-schema-file", file_,
                     "a file with a JSON schema, which the answer fulfils");
  command.add_option("-j,--json-schema", text_, "the schema itself, in place of a file");
}

void SchemaOption::check() {
  if (!given()) return;
  if (file_ && text_) {
    fail(ErrorCode::kInvalidArgument,
         "--schema and --json-schema both give a schema: wanted one of them");
  }
  const std::string text = file_ ? read_file(*file_) : *text_;
  const std::string where = file_ ? *file_ : "--json-schema";
  parse_json(text, where);  // strictly: duplicate keys, depth, range of numbers
  tag_ = schema_tag(nlohmann::ordered_json::parse(text));
}

TokenMask SchemaOption::mask(const LoadedModel& loaded, std::span<const int32_t> prompt,
                             bool chat) {
  store_ =
      std::make_unique<GrammarStore>(loaded.tokenizer, loaded.model.config().V, GrammarConfig{});
  ReasoningMarks marks;
  if (const auto source = chat_template_source(loaded.model.file()); chat && source)
    marks = marks_behind(reasoning_marks(*source), loaded.tokenizer, prompt);
  return grammar_mask(store_->compile_now(tag_), store_->spelling(), marks);
}

}  // namespace braid::app
