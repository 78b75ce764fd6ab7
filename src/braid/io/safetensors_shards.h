#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/io/safetensors_file.h"

namespace braid {

// A model cut into several safetensors files of a folder, with an index of tensors' files
// (model.safetensors.index.json). Every file is opened and checked at once.
class SafetensorsShards final : public WeightSource {
 public:
  // Fails with kMalformed if the index is broken, names a file outside its folder, or a tensor
  // missing in the named file; with kNotFound if a file is missing.
  explicit SafetensorsShards(const std::string& index_path);

  size_t num_files() const { return files_.size(); }

  std::optional<TensorView> find(std::string_view name) const override;
  std::optional<TensorType> find_type(std::string_view name) const override;
  std::vector<TensorInfo> tensors() const override;  // in the order of names
  const std::string& path() const override { return path_; }
  std::string description() const override;

 private:
  struct Entry {
    std::string name;
    const SafetensorsFile* file = nullptr;
    const TensorRecord* record = nullptr;
  };

  const Entry* entry(std::string_view name) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Entry> entries_;  // sorted by name
};

}  // namespace braid
