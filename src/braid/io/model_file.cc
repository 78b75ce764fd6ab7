#include "braid/io/model_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "braid/base/error.h"
#include "braid/io/foreign_file.h"

namespace braid {
namespace {

constexpr std::string_view kAccepted =
    "a model is a .gguf file or a Hugging Face folder with config.json and safetensors";

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (std::byte b : bytes.first(std::min<size_t>(bytes.size(), 8))) {
    out += fmt::format("{}{:02x}", out.empty() ? "" : " ", std::to_integer<int>(b));
  }
  return out;
}

GgufFile open_gguf(const std::string& path) {
  MappedFile file(path);
  if (is_gguf(file.bytes())) return GgufFile(std::move(file));
  if (path.ends_with(".safetensors")) {
    fail(ErrorCode::kInvalidArgument,
         "{}: a safetensors file alone is no model; name its folder: {}", path, kAccepted);
  }
  if (const auto what = foreign_file(file.bytes())) {
    fail(ErrorCode::kInvalidArgument, "{}: is not a model, but {}", path, *what);
  }
  fail(ErrorCode::kInvalidArgument, "{}: is not a model: it begins with {}; {}", path,
       hex(file.bytes()), kAccepted);
}

}  // namespace

ModelFile open_model_file(const std::string& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "no model is named: {}", kAccepted);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return HfFolder(path);
  return open_gguf(path);
}

const WeightSource& weights_of(const ModelFile& model) {
  if (const auto* gguf = std::get_if<GgufFile>(&model)) return *gguf;
  return std::get<HfFolder>(model).weights();
}

}  // namespace braid
