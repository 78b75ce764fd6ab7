#include "braid/io/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "braid/base/error.h"
#include "braid/io/json_object.h"
#include "braid/io/text_file.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

std::optional<std::string> find(const std::string& folder, const char* name) {
  const auto path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? std::optional(path.string())
                                                         : std::nullopt;
}

// T5's names of special tokens, if tokenizer_config.json gives none.
void name_t5_tokens(TokenizerSpec& spec) {
  const auto name = [&](int32_t& id, std::string_view piece) {
    const auto at = std::ranges::find(spec.pieces, piece);
    if (id < 0 && at != spec.pieces.end()) id = static_cast<int32_t>(at - spec.pieces.begin());
  };
  name(spec.special.eos, "</s>");
  name(spec.special.pad, "<pad>");
}

}  // namespace

nlohmann::ordered_json tokenizer_config(const std::string& folder) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (const auto path = find(folder, "tokenizer_config.json")) {
    config = JsonObject::read(*path).value();
  }
  const auto map = find(folder, "special_tokens_map.json");
  if (map && !config.contains("added_tokens_decoder")) {
    config.update(nlohmann::ordered_json(JsonObject::read(*map).value()));
  }
  return config;
}

TokenizerSpec tokenizer_from_folder(const std::string& path) {
  const std::string config = tokenizer_config(path).dump();
  if (const auto json = find(path, "tokenizer.json")) {
    TokenizerSpec spec = tokenizer_from_json(read_text(*json), config, *json);
    if (!spec.log_probs.empty()) name_t5_tokens(spec);
    return spec;
  }
  const auto vocab = find(path, "vocab.json"), merges = find(path, "merges.txt");
  if (vocab && merges) {
    return tokenizer_from_clip(read_text(*vocab), read_text(*merges), config, *vocab);
  }
  if (const auto model = find(path, "spiece.model")) {
    return tokenizer_from_sentencepiece(read_text(*model), config, *model);
  }
  fail(ErrorCode::kNotFound,
       "{} has no tokenizer: neither tokenizer.json, nor vocab.json with merges.txt, nor "
       "spiece.model",
       path);
}

}  // namespace braid
