#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {

// A model whose ranks thin far keys (tools/make_level_goldens.py, in f64).
struct LevelGoldenCase {
  nlohmann::json options;  // tokens, ranks, keep, groups, importance, perhaps drop_queries
  Case logits;             // without greedy tokens
};
struct LevelGolden {
  std::string model;    // whose weights and other configuration it has
  int more_layers = 0;  // behind its own
  std::vector<int64_t> columns;
  std::vector<LevelGoldenCase> cases;

  // Writes the model with all layers.
  void write(const std::filesystem::path& folder) const;
};

LevelGolden load_level_golden();
// Several families, each by Hugging Face's eager attention (tools/make_eager_level_goldens.py).
std::vector<LevelGolden> load_eager_level_goldens();

}  // namespace braid::golden
