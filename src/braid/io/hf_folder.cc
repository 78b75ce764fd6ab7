#include "braid/io/hf_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/safetensors_file.h"
#include "braid/io/safetensors_shards.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> existing(const std::string& folder, std::string_view name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? std::optional(path.string()) : std::nullopt;
}

JsonObject read_if_there(const std::string& folder, std::string_view name) {
  const auto path = existing(folder, name);
  return path ? JsonObject::read(*path)
              : JsonObject((fs::path(folder) / name).string(), nlohmann::json::object());
}

// The first file of the folder with this ending, for a helpful message.
std::optional<std::string> file_with_suffix(const std::string& folder, std::string_view suffix) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == suffix) return at->path().string();
  }
  return std::nullopt;
}

std::string check_folder(const std::string& path) {
  if (existing(path, "config.json")) return path;
  if (const auto gguf = file_with_suffix(path, ".gguf")) {
    fail(ErrorCode::kInvalidArgument, "{}: has no config.json; name the model file itself: {}",
         path, *gguf);
  }
  fail(ErrorCode::kNotFound, "{}: is no model folder: it has no config.json", path);
}

std::unique_ptr<WeightSource> open_weights(const std::string& folder) {
  if (const auto path = existing(folder, "model.safetensors")) {
    return std::make_unique<SafetensorsFile>(*path);
  }
  if (const auto path = existing(folder, "model.safetensors.index.json")) {
    return std::make_unique<SafetensorsShards>(*path);
  }
  const auto pickle = file_with_suffix(folder, ".bin");
  fail(ErrorCode::kNotFound, "{}: has no model.safetensors and no model.safetensors.index.json{}",
       folder, pickle ? "; PyTorch .bin files are not read: convert them to safetensors" : "");
}

}  // namespace

HfFolder::HfFolder(const std::string& path)
    : path_(check_folder(path)),
      config_(JsonObject::read((fs::path(path) / "config.json").string())),
      generation_config_(read_if_there(path, "generation_config.json")),
      weights_(open_weights(path)) {}

std::optional<std::string> HfFolder::find_file(std::string_view name) const {
  return existing(path_, name);
}

std::string HfFolder::file(std::string_view name) const {
  if (auto path = find_file(name)) return *std::move(path);
  fail(ErrorCode::kNotFound, "{}: has no {}", path_, name);
}

}  // namespace braid
