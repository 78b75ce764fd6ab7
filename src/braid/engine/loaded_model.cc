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

Tokenizer from_folder(const HfFolder& folder) {
  const auto config_path = folder.find_file("tokenizer_config.json");
  const std::string config = config_path ? read_text(*config_path) : "";
  const std::string path = folder.file("tokenizer.json");
  TokenizerSpec spec = tokenizer_from_json(read_text(path), config, path);
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
