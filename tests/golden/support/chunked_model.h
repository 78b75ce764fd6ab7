#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {

// A random model with a dual_chunk_attention_config, with room for sequences beyond its chunks.
class ChunkedModel {
 public:
  ChunkedModel(const DualChunkGolden& golden, const DualChunkCase& c)
      : ChunkedModel(load_random_model(golden.model), c.config) {}
  ChunkedModel(const RandomModel& random, const std::string& chunks) : folder_("dual_chunk") {
    write_hf_folder(random, folder_.path());
    nlohmann::json config = nlohmann::json::parse(std::ifstream(random.folder / "config.json"));
    config["dual_chunk_attention_config"] = nlohmann::json::parse(chunks);
    std::ofstream(folder_.path() / "config.json") << config;
    model_.emplace(folder_.path().string());
    plain_ = model_->config().context;
    model_->stretch(model_->config().dual->context);
  }
  const Model& model() const { return *model_; }
  std::string path() const { return folder_.path().string(); }
  int64_t plain() const { return plain_; }

 private:
  Folder folder_;
  std::optional<Model> model_;
  int64_t plain_ = 0;
};

}  // namespace braid::golden
