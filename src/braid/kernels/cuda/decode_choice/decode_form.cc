#include "braid/kernels/cuda/decode_choice/decode_form.h"

#include <fmt/format.h>

#include <charconv>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr std::string_view kForms =
    "auto, apart, relay, fused or fused:cluster=N,parts=1,split=token,scope=qkv,exchange=chip";

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view wanted) {
  fail(ErrorCode::kInvalidArgument, "--decode: {} is '{}', wanted {}", key, value, wanted);
}

void set_count(int& count, std::string_view key, std::string_view value, int most) {
  const char* end = value.data() + value.size();
  const auto [last, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || last != end || count < 1 || count > most) {
    refuse(key, value, fmt::format("1 to {}", most));
  }
}

void set(DecodeForm& form, std::string_view key, std::string_view value) {
  if (key == "cluster") {
    set_count(form.cluster, key, value, kMaxCluster);
  } else if (key == "parts") {
    set_count(form.parts, key, value, kFusedMaxParts);
  } else if (key == "split") {
    if (value != "token" && value != "head") refuse(key, value, "token or head");
    form.split = value == "token" ? FusedSplit::token : FusedSplit::head;
  } else if (key == "scope") {
    if (value != "qkv" && value != "projected") refuse(key, value, "qkv or projected");
    form.scope = value == "qkv" ? FusedScope::qkv : FusedScope::projected;
  } else if (key == "exchange") {
    if (value != "chip" && value != "memory") refuse(key, value, "chip or memory");
    form.path = value == "chip" ? ExchangePath::chip : ExchangePath::memory;
  } else {
    fail(ErrorCode::kInvalidArgument,
         "--decode: fused has no '{}', wanted cluster, parts, split, scope or exchange", key);
  }
}

}  // namespace

DecodeForm parse_decode(std::string_view text) {
  DecodeForm form;
  if (text == "auto") return form;
  if (text == "apart") return {.kind = DecodeKind::apart};
  if (text == "relay") return {.kind = DecodeKind::relay};
  constexpr std::string_view kFused = "fused";
  const bool is_fused = text == kFused || text.starts_with("fused:");
  if (!is_fused) fail(ErrorCode::kInvalidArgument, "--decode '{}': wanted {}", text, kForms);
  form.kind = DecodeKind::fused;
  for (text.remove_prefix(kFused.size()); !text.empty();) {
    text.remove_prefix(1);
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t equals = std::min(part.find('='), part.size());
    set(form, part.substr(0, equals), part.substr(std::min(equals + 1, part.size())));
    text.remove_prefix(end);
  }
  return form;
}

std::string to_string(const DecodeForm& form) {
  switch (form.kind) {
    case DecodeKind::automatic:
      return "auto";
    case DecodeKind::apart:
      return "apart";
    case DecodeKind::relay:
      return "relay";
    case DecodeKind::fused:
      break;
  }
  const std::string cluster =
      form.cluster > 0 ? fmt::format("cluster={},", form.cluster) : std::string();
  const std::string parts = form.parts > 1 ? fmt::format("parts={},", form.parts) : std::string();
  return fmt::format("fused:{}{}split={},scope={},exchange={}", cluster, parts,
                     form.split == FusedSplit::token ? "token" : "head",
                     form.scope == FusedScope::qkv ? "qkv" : "projected", to_string(form.path));
}

}  // namespace braid::cuda
