#pragma once

#include <string>
#include <vector>

#include "braid/io/aligned_copies.h"
#include "braid/io/mapped_file.h"
#include "braid/io/safetensors_header.h"
#include "braid/io/weight_source.h"

namespace braid {

// A mapped safetensors file; opening the file touches no weights.
class SafetensorsFile final : public WeightSource {
 public:
  // Fails as MappedFile and parse_safetensors do.
  explicit SafetensorsFile(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  const MappedFile& file() const { return file_; }

  std::optional<TensorView> find(std::string_view name) const override;
  std::optional<TensorType> find_type(std::string_view name) const override;
  TensorView view(const TensorRecord& record) const;  // of header()
  std::vector<TensorInfo> tensors() const override { return header_.tensors.infos(); }
  const std::string& path() const override { return file_.path(); }
  std::string description() const override;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  mutable AlignedCopies copies_;
};

}  // namespace braid
