#include "braid/grammar/grammar_tag.h"

#include "braid/base/error.h"
#include "braid/grammar/json_schema.h"
#include "braid/grammar/regex.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

// Blanks in a row between tokens of JSON. Without a bound small models write blanks to the end.
constexpr int kMostBlanks = 8;

}  // namespace

std::string tag_of(Json format) {
  return Json{{"type", "structural_tag"}, {"format", std::move(format)}}.dump();
}

Json schema_format(const Json& schema) {
  return {{"type", "json_schema"},
          {"json_schema", enforceable_schema(schema)},
          {"max_whitespace_cnt", kMostBlanks}};
}

std::string schema_tag(const Json& schema) {
  return tag_of(schema_format(schema));
}

std::string object_tag() {
  return schema_tag({{"type", "object"}});
}

std::string regex_tag(std::string_view pattern) {
  return tag_of({{"type", "regex"}, {"pattern", plain_regex(pattern, RegexUse::text, "regex")}});
}

std::string choice_tag(const std::vector<std::string>& texts) {
  if (texts.empty()) fail(ErrorCode::kInvalidArgument, "choice is empty");
  Json elements = Json::array();
  for (const std::string& text : texts) {
    if (text.empty()) fail(ErrorCode::kInvalidArgument, "choice has an empty text");
    elements.push_back({{"type", "const_string"}, {"value", text}});
  }
  return tag_of({{"type", "or"}, {"elements", std::move(elements)}});
}

std::string ebnf_tag(std::string_view grammar) {
  return tag_of({{"type", "grammar"}, {"grammar", grammar}});
}

}  // namespace braid
