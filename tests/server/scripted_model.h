#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/support/forward.h"
#include "golden/support/random_model.h"

namespace braid::server {

// A model whose answers are known: behind the first text of a script, which is one token, the rest
// of the script follows, token by token, and then its end. No text stands in two scripts. Behind
// the text kNoNumber no logit is a number.
class ScriptedModel {
 public:
  static constexpr const char* kNoNumber = "<no number>";

  ScriptedModel(const std::string& name, const std::vector<std::vector<std::string>>& scripts,
                const std::string& chat_template)
      : folder_(name) {
    golden::RandomModel model = golden::load_random_model("llama2_mha");
    nlohmann::ordered_json config = read(model.folder / "config.json");
    const int64_t first = config["vocab_size"];
    std::map<int64_t, int64_t> next;  // token to token
    std::vector<std::string> texts;
    for (const auto& script : scripts) {
      for (size_t i = 0; i < script.size(); ++i) {
        const int64_t id = first + std::ssize(texts);
        texts.push_back(script[i]);
        next[id] = i + 1 < script.size() ? id + 1 : kEnd;
      }
    }
    const int64_t vocabulary = first + std::ssize(texts);
    for (golden::TensorSpec& spec : model.tensors) {
      if (spec.shape[0] == first) spec.shape[0] = vocabulary;
    }
    // Without what layers add, a token's logits are those of its own embedding.
    const auto embedding =
        *std::ranges::find(model.tensors, "model.embed_tokens.weight", &golden::TensorSpec::name);
    const std::vector<float> rows = golden::random_tensor(model.seed, embedding);
    const auto width = static_cast<size_t>(embedding.shape[1]);
    model.edit = [=](const golden::TensorSpec& spec, std::span<float> values) {
      if (spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight"))
        std::ranges::fill(values, 0.0f);
      if (spec.name.ends_with("norm.weight")) std::ranges::fill(values, 1.0f);
      if (spec.name == embedding.name) {
        for (size_t i = 0; i < texts.size(); ++i) {
          const auto row = values.subspan((static_cast<size_t>(first) + i) * width, width);
          if (texts[i] == kNoNumber) std::ranges::fill(row, std::nanf(""));
        }
      }
      if (spec.name != "lm_head.weight") return;
      std::ranges::fill(values, 0.0f);
      for (const auto& [from, to] : next) {
        double squares = 0;
        for (size_t i = 0; i < width; ++i)
          squares += std::pow(rows[static_cast<size_t>(from) * width + i], 2);
        for (size_t i = 0; i < width; ++i) {
          values[static_cast<size_t>(to) * width + i] +=
              4 * rows[static_cast<size_t>(from) * width + i] /
              static_cast<float>(std::sqrt(squares));
        }
      }
    };
    golden::write_hf_folder(model, folder_.path());
    config["vocab_size"] = vocabulary;
    write("config.json", config);
    nlohmann::ordered_json tokenizer = read(folder_.path() / "tokenizer.json");
    for (size_t i = 0; i < texts.size(); ++i) {
      tokenizer["added_tokens"].push_back({{"id", first + static_cast<int64_t>(i)},
                                           {"content", texts[i]},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", false}});
    }
    write("tokenizer.json", tokenizer);
    nlohmann::ordered_json more = read(folder_.path() / "tokenizer_config.json");
    more["chat_template"] = chat_template;
    write("tokenizer_config.json", more);
  }

  std::string path() const { return folder_.path().string(); }

 private:
  static constexpr int64_t kEnd = 258;  // <|im_end|>

  static nlohmann::ordered_json read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::ordered_json::parse(file);
  }
  void write(const std::string& name, const nlohmann::ordered_json& json) const {
    std::ofstream(folder_.path() / name) << json.dump();
  }

  golden::Folder folder_;
};

}  // namespace braid::server
