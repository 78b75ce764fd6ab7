#include "braid/io/safetensors_file.h"

#include "braid/base/error.h"
#include "braid/io/foreign_file.h"

namespace braid {

namespace {

SafetensorsHeader read_header(const MappedFile& file) {
  // Behind the length a header begins with a brace: only without it the file is something else.
  const bool header = file.size() > 8 && file.bytes()[8] == std::byte{'{'};
  if (const auto what = header ? std::nullopt : foreign_file(file.bytes())) {
    fail(ErrorCode::kInvalidArgument, "{}: is {}", file.path(), *what);
  }
  return parse_safetensors(file.path(), file.bytes());
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(read_header(file_)) {}

std::optional<TensorView> SafetensorsFile::find(std::string_view name) const {
  const TensorRecord* record = header_.tensors.find(name);
  if (record == nullptr) return std::nullopt;
  return view(*record);
}

std::optional<TensorType> SafetensorsFile::find_type(std::string_view name) const {
  const TensorRecord* record = header_.tensors.find(name);
  if (record == nullptr) return std::nullopt;
  return header_.tensors.type(*record);
}

TensorView SafetensorsFile::view(const TensorRecord& record) const {
  return copies_.aligned(header_.tensors.view(record, file_.bytes()));
}

std::string SafetensorsFile::description() const {
  return fmt::format("safetensors, {} tensors", header_.tensors.records().size());
}

}  // namespace braid
