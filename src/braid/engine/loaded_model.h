#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "braid/io/tokenizer.h"
#include "braid/model/model.h"

namespace braid {

// The tokenizer in a model file; for a folder its tokenizer.json, with every end-of-generation id
// in generation_config.json. `file` outlives the tokenizer.
Tokenizer load_tokenizer(const ModelFile& file);

// The chat template's source, if the model has a template. Among several, `with_tools` picks the
// template for requests with tools.
std::optional<std::string> chat_template_source(const ModelFile& file, bool with_tools = false);

// The texts of tokens that a chat template may name: bos_token, eos_token, unk_token, pad_token
// and, for a folder, every one of tokenizer_config.json (or special_tokens_map.json) as in Hugging
// Face. Those that the model does not have are left out; a GGUF file's bos_token and eos_token are
// empty.
nlohmann::ordered_json template_tokens(const ModelFile& file, const Tokenizer& tokenizer);

// A model and its tokenizer.
struct LoadedModel {
  explicit LoadedModel(const std::string& path)
      : model(path), tokenizer(load_tokenizer(model.file())) {}
  // A shape with random weights, and the tokenizer and chat template of the model at `text`. Fails
  // with kInvalidArgument where the tokenizer has more ids than the shape.
  LoadedModel(const ModelShape& shape, const std::string& text);

  // The file with tokenizer, chat template and recommended sampling.
  const ModelFile& text_file() const { return text ? *text : model.file(); }

  Model model;
  std::optional<ModelFile> text;  // of a model without a file
  Tokenizer tokenizer;
};

}  // namespace braid
