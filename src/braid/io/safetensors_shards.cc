#include "braid/io/safetensors_shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/json_object.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

using WeightMap = std::map<std::string, std::string>;  // tensor to file name

// A plain file name: nothing that a folder, a parent or a root could hide in.
bool stays_in_folder(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

WeightMap read_weight_map(const std::string& path) {
  const auto object = JsonObject::read(path).object("weight_map");
  if (!object) fail(ErrorCode::kMalformed, "{}: there is no 'weight_map'", path);
  WeightMap out;
  for (const auto& [tensor, file] : object->value().items()) {
    auto name = object->get<std::string>(tensor);
    if (!stays_in_folder(name)) {
      fail(ErrorCode::kMalformed,
           "{}: tensor {} is in {}, wanted is the name of a file in the same folder", path,
           braid::quoted(tensor), braid::quoted(name));
    }
    out.emplace(tensor, std::move(name));
  }
  if (out.empty()) fail(ErrorCode::kMalformed, "{}: 'weight_map' is empty", path);
  return out;
}

}  // namespace

SafetensorsShards::SafetensorsShards(const std::string& index_path) : path_(index_path) {
  const std::filesystem::path folder = std::filesystem::path(index_path).parent_path();
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, name] : read_weight_map(index_path)) {
    auto& file = opened[name];
    if (file == nullptr) {
      const std::filesystem::path path = folder / name;
      if (!std::filesystem::exists(path)) {
        fail(ErrorCode::kNotFound, "{}: tensor {} is in {}, which is missing", path_,
             braid::quoted(tensor), path.string());
      }
      files_.push_back(std::make_unique<SafetensorsFile>(path.string()));
      file = files_.back().get();
    }
    const TensorRecord* record = file->header().tensors.find(tensor);
    if (record == nullptr) {
      fail(ErrorCode::kMalformed, "{}: tensor {} is not in its file {}", path_,
           braid::quoted(tensor), file->path());
    }
    entries_.push_back({tensor, file, record});
  }
}

const SafetensorsShards::Entry* SafetensorsShards::entry(std::string_view name) const {
  const auto at = std::ranges::lower_bound(
      entries_, name, {}, [](const Entry& e) -> std::string_view { return e.name; });
  return at == entries_.end() || at->name != name ? nullptr : &*at;
}

std::optional<TensorView> SafetensorsShards::find(std::string_view name) const {
  const Entry* found = entry(name);
  if (found == nullptr) return std::nullopt;
  return found->file->view(*found->record);
}

std::optional<TensorType> SafetensorsShards::find_type(std::string_view name) const {
  const Entry* found = entry(name);
  if (found == nullptr) return std::nullopt;
  return found->file->header().tensors.type(*found->record);
}

std::vector<TensorInfo> SafetensorsShards::tensors() const {
  std::vector<TensorInfo> out;
  for (const Entry& e : entries_) {
    out.push_back({e.name, e.record->type, e.record->shape, e.record->bytes});
  }
  return out;
}

std::string SafetensorsShards::description() const {
  return fmt::format("safetensors, {} tensors in {} files", entries_.size(), files_.size());
}

}  // namespace braid
