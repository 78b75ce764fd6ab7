#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "braid/io/tokenizer.h"
#include "braid/io/tokenizer_load.h"

namespace braid {

// What tools/make_tokenizer_goldens.py wrote.
inline std::string golden_path(const std::string& name) {
  return std::string(BRAID_TEST_DATA) + "/golden/tokenizer/" + name;
}

inline std::string golden_text(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(golden_text(name));
}

inline std::vector<std::string> golden_texts() {
  return golden_json("texts.json");
}

inline Tokenizer golden_tokenizer(const std::string& family) {
  return Tokenizer(tokenizer_from_json(golden_text(family + ".json")));
}

constexpr const char* kFamilies[] = {"gpt2", "smollm", "llama3", "qwen2", "llama2", "mistral"};

}  // namespace braid
