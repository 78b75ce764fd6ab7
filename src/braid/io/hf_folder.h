#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/json_object.h"
#include "braid/io/weight_source.h"

namespace braid {

// A model folder in Hugging Face's layout: config.json, model.safetensors or its shards with
// model.safetensors.index.json, and the files around them.
class HfFolder {
 public:
  // Opens and checks config.json and all weight files; fails with kNotFound for a missing file.
  explicit HfFolder(const std::string& path);

  const std::string& path() const { return path_; }
  const JsonObject& config() const { return config_; }
  // generation_config.json; without fields if the file is missing.
  const JsonObject& generation_config() const { return generation_config_; }
  const WeightSource& weights() const { return *weights_; }

  // The path of a file in the folder ("tokenizer.json"); file() fails with kNotFound.
  std::optional<std::string> find_file(std::string_view name) const;
  std::string file(std::string_view name) const;

 private:
  std::string path_;
  JsonObject config_;
  JsonObject generation_config_;
  std::unique_ptr<WeightSource> weights_;
};

}  // namespace braid
