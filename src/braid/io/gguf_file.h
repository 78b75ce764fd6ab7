#pragma once

#include <string>
#include <vector>

#include "braid/io/aligned_copies.h"
#include "braid/io/gguf_parser.h"
#include "braid/io/mapped_file.h"
#include "braid/io/weight_source.h"

namespace braid {

// A GGUF model file, mapped. Opening costs a pass over the metadata; weights are not touched.
// Movable; views stay valid after a move.
class GgufFile final : public WeightSource {
 public:
  // Fails as MappedFile and parse_gguf do; kUnsupported for a piece of a split model.
  explicit GgufFile(const std::string& path) : GgufFile(MappedFile(path)) {}
  explicit GgufFile(MappedFile file);

  const GgufMetadata& metadata() const { return contents_.metadata; }
  const GgufContents& contents() const { return contents_; }
  const MappedFile& file() const { return file_; }

  std::optional<TensorView> find(std::string_view name) const override;
  std::optional<TensorType> find_type(std::string_view name) const override;
  std::vector<TensorInfo> tensors() const override;
  const std::string& path() const override { return file_.path(); }
  std::string description() const override;

 private:
  MappedFile file_;
  GgufContents contents_;
  mutable AlignedCopies copies_;
};

}  // namespace braid
