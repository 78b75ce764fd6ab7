#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
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
  static const std::vector<const ModelFamily*> kFamilies = {
      &kLlama,      &kMistral,    &kQwen2,       &kQwen3,     &kMixtral, &kQwen2Moe, &kQwen3Moe,
      &kDeepseekV2, &kDeepseekV3, &kGlm4MoeLite, &kInternLm2, &kGlm,     &kGlm4,     &kChatGlm};
  return kFamilies;
}

const ModelFamily& family_of(const ModelFile& file) {
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    const auto name = gguf->metadata().get<std::string_view>("general.architecture");
    const ModelFamily& family =
        find_family(gguf->path(), std::string(name), &ModelFamily::gguf_architectures);
    const auto takes = [&](const ModelFamily* other) {
      return other->gguf_takes && std::ranges::count(other->gguf_architectures, name) > 0 &&
             other->gguf_takes(*gguf);
    };
    const auto own = std::ranges::find_if(model_families(), takes);
    return own == model_families().end() ? family : **own;
  }
  const auto& folder = std::get<HfFolder>(file);
  return family_of(folder.config(), folder.path());
}

const ModelFamily& family_of(const JsonObject& config, const std::string& path) {
  const auto names = config.get_or<std::vector<std::string>>("architectures", {});
  const auto type = config.find<std::string>("model_type");
  const auto typed = std::ranges::find_if(
      model_families(), [&](const ModelFamily* family) { return type && family->name == *type; });
  if (names.empty()) {
    if (typed != model_families().end()) return **typed;
    fail(ErrorCode::kUnsupported, "{}: no architectures, and model_type '{}' (known: {})", path,
         type.value_or(""),
         fmt::join(model_families() | std::views::transform(&ModelFamily::name), ", "));
  }
  const ModelFamily& family = find_family(path, names[0], &ModelFamily::hf_architectures);
  if (type && family.name != *type) {
    fail(ErrorCode::kUnsupported, "{}: architectures says '{}', model_type says '{}'", path,
         names[0], *type);
  }
  return family;
}

}  // namespace braid
