#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace braid {

// An answer's required form, as a text for GrammarLibrary::compile: xgrammar's structural tags.
// Equal texts are equal grammars. All fail with kInvalidArgument where a word cannot be kept.

// JSON that fulfils a schema, keys in the schema's order.
std::string schema_tag(const nlohmann::ordered_json& schema);
// Any JSON object.
std::string object_tag();
std::string regex_tag(std::string_view pattern);
// A tag for any text in `texts`.
std::string choice_tag(const std::vector<std::string>& texts);
// A grammar in EBNF whose rule `root` is the answer.
std::string ebnf_tag(std::string_view grammar);

// Parts of larger tags: a schema's JSON in xgrammar's format, and a format's tag.
nlohmann::ordered_json schema_format(const nlohmann::ordered_json& schema);
std::string tag_of(nlohmann::ordered_json format);

}  // namespace braid
