#include "braid/io/diffusers_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/safetensors_file.h"
#include "braid/io/safetensors_shards.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

// File stems of a component's weights in transformers and diffusers.
constexpr auto kStems = std::to_array<std::string_view>({"diffusion_pytorch_model", "model"});

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string index_path(const std::string& path) {
  const fs::path index = fs::path(path) / "model_index.json";
  if (is_file(index)) return index.string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail(ErrorCode::kNotFound, "{}: there is no such folder", path);
  if (!fs::is_directory(path, ignored)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: is a file; wanted is the folder of a diffusers pipeline, with a model_index.json",
         path);
  }
  fail(ErrorCode::kNotFound, "{}: is no diffusers pipeline: it has no model_index.json", path);
}

struct WeightFile {
  std::string path;
  bool shards = false;
};

// The weights with this stem in this variant, "" for the plain ones.
std::optional<WeightFile> find_weights(const fs::path& folder, std::string_view stem,
                                       std::string_view variant) {
  const std::string dot = variant.empty() ? "" : "." + std::string(variant);
  const fs::path whole = folder / fmt::format("{}{}.safetensors", stem, dot);
  if (is_file(whole)) return WeightFile{whole.string(), false};
  const fs::path index = folder / fmt::format("{}.safetensors.index{}.json", stem, dot);
  if (is_file(index)) return WeightFile{index.string(), true};
  return std::nullopt;
}

// The variants with files in the folder.
std::set<std::string> variants_in(const fs::path& folder, std::string_view stem) {
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    for (const auto& [prefix, suffix] :
         {std::pair(fmt::format("{}.", stem), std::string(".safetensors")),
          std::pair(fmt::format("{}.safetensors.index.", stem), std::string(".json"))}) {
      if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
          !name.ends_with(suffix)) {
        continue;
      }
      const auto variant = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
      if (variant.find("-of-") == std::string::npos) found.insert(variant);  // not a shard
    }
  }
  return found;
}

std::unique_ptr<WeightSource> open(const WeightFile& file) {
  if (file.shards) return std::make_unique<SafetensorsShards>(file.path);
  return std::make_unique<SafetensorsFile>(file.path);
}

}  // namespace

DiffusersFolder::DiffusersFolder(const std::string& path)
    : path_(path),
      index_(JsonObject::read(index_path(path))),
      pipeline_(index_.get<std::string>("_class_name")) {}

std::optional<std::string> DiffusersFolder::find_class(std::string_view component) const {
  const auto at = index_.value().find(std::string(component));
  if (at == index_.value().end() || at->is_null()) return std::nullopt;
  if (!at->is_array() || at->size() != 2) {
    fail(ErrorCode::kMalformed,
         "{}/model_index.json: '{}' is {}, wanted is [library, class] or [null, null]", path_,
         component, braid::quoted(at->dump()));
  }
  if ((*at)[1].is_null()) return std::nullopt;
  if (!(*at)[1].is_string()) {
    fail(ErrorCode::kMalformed, "{}/model_index.json: the class of '{}' is {}, wanted is a name",
         path_, component, braid::quoted((*at)[1].dump()));
  }
  return (*at)[1].get<std::string>();
}

void DiffusersFolder::require_class(std::string_view component, std::string_view wanted) const {
  const auto found = find_class(component);
  if (!found) {
    fail(ErrorCode::kNotFound, "{}: the pipeline has no '{}', a {} is wanted", path_, component,
         wanted);
  }
  if (*found != wanted) {
    fail(ErrorCode::kUnsupported, "{}: '{}' is of class {}, a {} is wanted", path_, component,
         braid::quoted(*found), wanted);
  }
}

std::string DiffusersFolder::folder(std::string_view component) const {
  const fs::path folder = fs::path(path_) / component;
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return folder.string();
  fail(ErrorCode::kNotFound,
       "{}: has no folder '{}', which its model_index.json names: -m takes a pipeline with all of "
       "its components",
       path_, component);
}

std::string DiffusersFolder::file(std::string_view component, std::string_view name) const {
  const fs::path path = fs::path(folder(component)) / name;
  if (is_file(path)) return path.string();
  fail(ErrorCode::kNotFound, "{}: has no {}: -m takes a pipeline whose components are complete",
       folder(component), name);
}

JsonObject DiffusersFolder::config(std::string_view component, std::string_view name) const {
  return JsonObject::read(file(component, name));
}

std::unique_ptr<WeightSource> DiffusersFolder::weights(std::string_view component,
                                                       std::string_view variant) const {
  const fs::path in = folder(component);
  for (std::string_view stem : kStems) {
    if (const auto file = find_weights(in, stem, variant)) return open(*file);
  }
  std::string there;
  for (std::string_view stem : kStems) {
    const std::set<std::string> variants = variants_in(in, stem);
    if (variant.empty() && variants.size() == 1) {
      if (const auto file = find_weights(in, stem, *variants.begin())) return open(*file);
    }
    for (const std::string& name : variants) there += (there.empty() ? "" : ", ") + name;
  }
  const bool plain = std::ranges::any_of(
      kStems, [&](std::string_view stem) { return find_weights(in, stem, "").has_value(); });
  std::string remedy = "; -m takes a pipeline whose components are complete";
  if (!there.empty()) remedy = "; --variant takes one of those there: " + there;
  if (plain) {
    remedy =
        fmt::format("; plain files are there, without --variant{}", there.empty() ? "" : remedy);
  }
  fail(ErrorCode::kNotFound,
       "{}: has no weights{}: wanted is {}{}.safetensors, {}{}.safetensors or an index of shards{}",
       in.string(), variant.empty() ? "" : fmt::format(" of the variant '{}'", variant), kStems[0],
       variant.empty() ? "" : "." + std::string(variant), kStems[1],
       variant.empty() ? "" : "." + std::string(variant), remedy);
}

}  // namespace braid
