#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "braid/tensor/dtype.h"
#include "golden/support/random_weights.h"

namespace braid::golden {

// What a written file has to be, from the script that wrote it first.
struct Checksum {
  uint64_t bytes = 0;
  uint64_t fnv1a64 = 0;
};

// A random model of tests/golden/models/<name>: only its specification is committed, and its files
// are written where they are needed.
struct RandomModel {
  std::string name;
  std::filesystem::path folder;  // of the specification
  uint64_t seed = 0;
  DType dtype = DType::f32;               // of the safetensors files
  std::vector<TensorSpec> tensors;        // in the order of weights.json
  std::map<std::string, Checksum> files;  // safetensors files by name
  nlohmann::json gguf;                    // gguf.json
  // Changes the values of a tensor that write_hf_folder writes; may be empty.
  std::function<void(const TensorSpec& spec, std::span<float> values)> edit;

  // f32 values as the safetensors file holds them, rounded to `dtype`.
  std::vector<float> values(const TensorSpec& spec) const;
  std::vector<std::string> gguf_forms() const;
  Checksum gguf_checksum(const std::string& form) const;
};

// Names of all models, sorted.
std::vector<std::string> random_model_names();
// Names of the models without any of these keys in config.json.
std::vector<std::string> random_models_without(const std::vector<std::string>& keys);
RandomModel load_random_model(const std::string& name);

// Writes config.json, generation_config.json, the tokenizer and the safetensors files (with an
// index where there are several) into `folder`, which is made. A few MB at most.
void write_hf_folder(const RandomModel& model, const std::filesystem::path& folder);

// Writes the model as GGUF in one of gguf_forms(): the same bytes as PyPI gguf.
void write_gguf(const RandomModel& model, const std::string& form,
                const std::filesystem::path& path);

Checksum checksum_of(const std::filesystem::path& path);

// Throws unless `path` is what the script wrote.
void verify_checksum(const std::filesystem::path& path, const Checksum& expected);

}  // namespace braid::golden
