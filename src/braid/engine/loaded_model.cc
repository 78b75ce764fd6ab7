#include "braid/engine/loaded_model.h"

#include <nlohmann/json.hpp>

#include "braid/io/jinja/chat_template.h"
#include "braid/io/json_object.h"
#include "braid/io/text_file.h"
#include "braid/io/tokenizer_folder.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

Tokenizer from_folder(const HfFolder& folder) {
  const std::string path = folder.file("tokenizer.json");
  TokenizerSpec spec =
      tokenizer_from_json(read_text(path), tokenizer_config(folder.path()).dump(), path);
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

LoadedModel::LoadedModel(const ModelShape& shape, const std::string& path)
    : model(shape, 1), text(open_model_file(path)), tokenizer(load_tokenizer(*text)) {
  if (tokenizer.vocab_size() > model.config().V) {
    fail(ErrorCode::kInvalidArgument, "{}: a tokenizer of {} ids, the shape has {}", path,
         tokenizer.vocab_size(), model.config().V);
  }
}

nlohmann::ordered_json template_tokens(const ModelFile& file, const Tokenizer& tokenizer) {
  if (const auto* folder = std::get_if<HfFolder>(&file)) {
    return find_special_tokens(tokenizer_config(folder->path()));
  }
  const SpecialIds& ids = tokenizer.special();
  const auto text = [&](int32_t id) { return id < 0 ? "" : std::string(tokenizer.piece(id)); };
  nlohmann::ordered_json tokens = {{"bos_token", text(ids.bos)}, {"eos_token", text(ids.eos)}};
  if (ids.unk >= 0) tokens["unk_token"] = text(ids.unk);
  if (ids.pad >= 0) tokens["pad_token"] = text(ids.pad);
  return tokens;
}

std::optional<std::string> chat_template_source(const ModelFile& file, bool with_tools) {
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    const auto text = gguf->metadata().find<std::string_view>("tokenizer.chat_template");
    return text ? std::optional(std::string(*text)) : std::nullopt;
  }
  const auto& folder = std::get<HfFolder>(file);
  if (const auto path = folder.find_file("chat_template.jinja")) return read_text(*path);
  const auto path = folder.find_file("tokenizer_config.json");
  if (!path) return std::nullopt;
  return find_chat_template(JsonObject::read(*path).value(), with_tools);
}

}  // namespace braid
