#include "braid/io/gguf_file.h"

#include <utility>

#include "braid/base/error.h"

namespace braid {

GgufFile::GgufFile(MappedFile file)
    : file_(std::move(file)), contents_(parse_gguf(file_.path(), file_.bytes())) {
  const auto pieces = metadata().get_or<uint32_t>("split.count", 1);
  if (pieces > 1) {
    fail(ErrorCode::kUnsupported,
         "{}: is one of {} pieces of a split model: merge them into one file first", path(),
         pieces);
  }
}

std::optional<TensorView> GgufFile::find(std::string_view name) const {
  const TensorRecord* record = contents_.tensors.find(name);
  if (record == nullptr) return std::nullopt;
  return copies_.aligned(contents_.tensors.view(*record, file_.bytes()));
}

std::optional<TensorType> GgufFile::find_type(std::string_view name) const {
  const TensorRecord* record = contents_.tensors.find(name);
  if (record == nullptr) return std::nullopt;
  return contents_.tensors.type(*record);
}

std::vector<TensorInfo> GgufFile::tensors() const {
  return contents_.tensors.infos();
}

std::string GgufFile::description() const {
  return fmt::format("GGUF v{}, {} tensors", contents_.version, contents_.tensors.records().size());
}

}  // namespace braid
