#include "braid/engine/loaded_model.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "braid/io/jinja/chat_template.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// tokenizer_config.json. Where it lists no added tokens, special_tokens_map.json names the special
// ones: folders older than that list have both.
nlohmann::ordered_json tokenizer_config(const HfFolder& folder) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (const auto path = folder.find_file("tokenizer_config.json")) {
    config = JsonObject::read(*path).value();
  }
  const auto map = folder.find_file("special_tokens_map.json");
  if (map && !config.contains("added_tokens_decoder")) {
    config.update(nlohmann::ordered_json(JsonObject::read(*map).value()));
  }
  return config;
}

Tokenizer from_folder(const HfFolder& folder) {
  const std::string path = folder.file("tokenizer.json");
  TokenizerSpec spec = tokenizer_from_json(read_text(path), tokenizer_config(folder).dump(), path);
  for (const JsonObject* json : {&folder.generation_config(), &folder.config()}) {
    const auto ids = json->get_or<std::vector<int64_t>>("eos_token_id", {});
    for (int64_t id : ids) spec.end_of_generation.push_back(static_cast<int32_t>(id));
    if (!ids.empty()) break;
  }
  return Tokenizer(std::move(spec));
}

}  // namespace

Tokenizer load_tokenizer(const ModelFile& file) {
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    return Tokenizer(tokenizer_from_gguf(gguf->metadata(), gguf->path()));
  }
  return from_folder(std::get<HfFolder>(file));
}

nlohmann::ordered_json template_tokens(const ModelFile& file, const Tokenizer& tokenizer) {
  if (const auto* folder = std::get_if<HfFolder>(&file)) {
    return find_special_tokens(tokenizer_config(*folder));
  }
  const SpecialIds& ids = tokenizer.special();
  const auto text = [&](int32_t id) { return id < 0 ? "" : std::string(tokenizer.piece(id)); };
  nlohmann::ordered_json tokens = {{"bos_token", text(ids.bos)}, {"eos_token", text(ids.eos)}};
  if (ids.unk >= 0) tokens["unk_token"] = text(ids.unk);
  if (ids.pad >= 0) tokens["pad_token"] = text(ids.pad);
  return tokens;
}

std::optional<std::string> chat_template_source(const ModelFile& file) {
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    const auto text = gguf->metadata().find<std::string_view>("tokenizer.chat_template");
    return text ? std::optional(std::string(*text)) : std::nullopt;
  }
  const auto& folder = std::get<HfFolder>(file);
  if (const auto path = folder.find_file("chat_template.jinja")) return read_text(*path);
  const auto path = folder.find_file("tokenizer_config.json");
  if (!path) return std::nullopt;
  return find_chat_template(JsonObject::read(*path).value(), /*with_tools=*/false);
}

}  // namespace braid
