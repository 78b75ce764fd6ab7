#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace braid {

// A JSON schema with the same meaning or a narrower one, in the words that xgrammar keeps. Lengths,
// formats and patterns become plain patterns; objects that list properties have no others unless
// the schema says so. Fails with kInvalidArgument, naming the place and the word, where a word
// would not be kept: each answer that the result allows fulfils the schema.
nlohmann::ordered_json enforceable_schema(const nlohmann::ordered_json& schema);

// The enforced formats of strings, for messages and documents.
std::string_view known_formats();

}  // namespace braid
