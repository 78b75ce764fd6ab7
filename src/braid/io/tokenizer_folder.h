#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace braid {

// tokenizer_config.json of a folder, or an empty object. Without added tokens in that file,
// special_tokens_map.json names the special tokens: older folders have both files.
nlohmann::ordered_json tokenizer_config(const std::string& folder);

}  // namespace braid
