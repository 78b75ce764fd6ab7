#pragma once

#include <string>

#include "braid/io/tokenizer.h"
#include "braid/model/model.h"

namespace braid {

// The tokenizer of a model file; for a folder its tokenizer.json, and every end-of-generation id
// that generation_config.json names. `file` outlives it.
Tokenizer load_tokenizer(const ModelFile& file);

// The chat template's source, if the model brings one.
std::optional<std::string> chat_template_source(const ModelFile& file);

// A model and its tokenizer.
struct LoadedModel {
  explicit LoadedModel(const std::string& path)
      : model(path), tokenizer(load_tokenizer(model.file())) {}

  Model model;
  Tokenizer tokenizer;
};

}  // namespace braid
