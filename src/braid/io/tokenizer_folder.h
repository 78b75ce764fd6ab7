#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace braid {

// tokenizer_config.json of a folder, or an empty object. Where it lists no added tokens,
// special_tokens_map.json names the special ones: folders older than that list have both.
nlohmann::ordered_json tokenizer_config(const std::string& folder);

}  // namespace braid
