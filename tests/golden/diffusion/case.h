#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "braid/io/diffusers_folder.h"
#include "braid/io/safetensors_file.h"

namespace braid::golden {

// One run of diffusers on a pipeline of tools/make_tiny_pipeline.py: cases.json, and the tensors of
// <name>.safetensors (tests/golden/README.md).
struct DiffusionCase {
  std::string name;
  std::string kind;  // of the pipeline
  std::vector<std::string> prompts;
  int64_t width = 0, height = 0;  // pixels
  int64_t steps = 0;
  float guidance = 0;
  std::vector<uint64_t> seeds;
  int64_t text = 0;  // T5 tokens

  int64_t batch() const { return std::ssize(prompts); }
};

inline std::string diffusion_golden(const std::string& file) {
  return std::string(BRAID_TEST_DATA "/golden/diffusion/") + file;
}

inline nlohmann::json diffusion_json(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(diffusion_golden(file)));
}

inline std::vector<DiffusionCase> diffusion_cases() {
  std::vector<DiffusionCase> cases;
  const nlohmann::json all = diffusion_json("cases.json");
  for (const auto& j : all) {
    cases.push_back({.name = j.at("name"),
                     .kind = j.at("kind"),
                     .prompts = j.at("prompts"),
                     .width = j.at("width"),
                     .height = j.at("height"),
                     .steps = j.at("steps"),
                     .guidance = j.at("guidance"),
                     .seeds = j.at("seeds"),
                     .text = j.at("text")});
  }
  return cases;
}

inline std::string tiny_pipeline(const std::string& kind) {
  return std::string(BRAID_TINY_PIPELINES "/") + kind;
}

template <class T>
std::vector<T> tensor(const SafetensorsFile& file, std::string_view name) {
  const TensorView view = file.get(name);
  const T* data = view.as<const T>();
  return {data, data + view.shape.elems()};
}

}  // namespace braid::golden
