#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braid {

// The folders in which programs keep models. A missing folder has no models.
struct ModelStores {
  std::filesystem::path braid;                // Braid's own: model files
  std::filesystem::path hub;                  // Hugging Face's cache of repositories
  std::vector<std::filesystem::path> ollama;  // ollama's: manifests and blobs
  bool hub_client = false;                    // Hugging Face's `hf` program is on the PATH
};

using Environment = std::function<const char*(const char* name)>;  // as std::getenv

// As the environment says: XDG_CACHE_HOME, HF_HUB_CACHE, HF_HOME, OLLAMA_MODELS, HOME, PATH.
ModelStores model_stores(const Environment& environment);

// The path of the model that a user names, by the first form that fits:
//   a path                            to a model file or folder, or to a repository in the cache
//   ORG/REPO, ORG/REPO@REVISION       in Hugging Face's cache; :NAME picks a GGUF file
//   NAME                              a file or folder in Braid's cache, the ending is optional
//   NAME, NAME:TAG, hf.co/ORG/REPO    in ollama's store
// Nothing is downloaded. Fails with kNotFound, naming the places and the command for a download,
// and with kInvalidArgument if several files fit.
std::string find_model(const std::string& name, const ModelStores& stores);

// The model fetched by `make model`, if present.
std::optional<std::string> demo_model(const ModelStores& stores);

}  // namespace braid
