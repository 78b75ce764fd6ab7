#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "braid/model/family.h"

namespace braid {
namespace {

using Names = std::vector<std::string_view> ModelFamily::*;

const ModelFamily& find_family(const std::string& path, const std::string& architecture,
                               Names names) {
  std::set<std::string_view> known;
  for (const ModelFamily* family : model_families()) {
    const auto& list = family->*names;
    if (std::ranges::find(list, architecture) != list.end()) return *family;
    known.insert(list.begin(), list.end());
  }
  fail(ErrorCode::kUnsupported, "{}: unknown architecture '{}' (known: {})", path, architecture,
       fmt::join(known, ", "));
}

}  // namespace

const std::vector<const ModelFamily*>& model_families() {
  static const std::vector<const ModelFamily*> kFamilies = {&kLlama, &kMistral, &kQwen2, &kQwen3};
  return kFamilies;
}

const ModelFamily& family_of(const ModelFile& file) {
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    const auto name = gguf->metadata().get<std::string_view>("general.architecture");
    return find_family(gguf->path(), std::string(name), &ModelFamily::gguf_architectures);
  }
  const auto& folder = std::get<HfFolder>(file);
  return family_of(folder.config(), folder.path());
}

const ModelFamily& family_of(const JsonObject& config, const std::string& path) {
  const auto names = config.get<std::vector<std::string>>("architectures");
  return find_family(path, names.empty() ? "" : names[0], &ModelFamily::hf_architectures);
}

}  // namespace braid
