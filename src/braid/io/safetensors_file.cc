#include "braid/io/safetensors_file.h"

#include <fmt/format.h>

namespace braid {

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors(path, file_.bytes())) {}

std::optional<TensorView> SafetensorsFile::find(std::string_view name) const {
  const TensorRecord* record = header_.tensors.find(name);
  if (record == nullptr) return std::nullopt;
  return header_.tensors.view(*record, file_.bytes());
}

std::string SafetensorsFile::description() const {
  return fmt::format("safetensors, {} tensors", header_.tensors.records().size());
}

}  // namespace braid
