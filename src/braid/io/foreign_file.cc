#include "braid/io/foreign_file.h"

#include <algorithm>
#include <array>

namespace braid {
namespace {

constexpr size_t kLookedAt = 256;

struct Beginning {
  std::string_view bytes;  // letters in lower case
  std::string_view what;
};

constexpr std::string_view kWebPage = "a web page, not the file itself: download it again";
constexpr std::string_view kOldGgml =
    "a GGML file from before GGUF, a format that is read no more: convert the model anew";

constexpr auto kBeginnings = std::to_array<Beginning>({
    {"version https://git-lfs.github.com/",
     "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"},
    {"<!doctype", kWebPage},
    {"<html", kWebPage},
    {"<?xml", kWebPage},
    {"<head", kWebPage},
    {"entry not found", "a server's refusal ('Entry not found'), not the file itself"},
    {"invalid username or password", "a server's refusal, not the file itself: log in first"},
    {"access to model", "a server's refusal, not the file itself: the model is gated"},
    {"pk\x03\x04", "a ZIP or PyTorch archive: convert it to safetensors or GGUF"},
    {"\x80\x02", "a Python pickle: convert it to safetensors or GGUF"},
    {"\x1f\x8b", "compressed by gzip: unpack it first"},
    {"\xfd"
     "7zxz",
     "compressed by xz: unpack it first"},
    {"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first"},
    {"bzh", "compressed by bzip2: unpack it first"},
    {"lmgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"tjgg", kOldGgml},
    {"algg", kOldGgml},
});

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::optional<std::string_view> foreign_file(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                        std::min(bytes.size(), kLookedAt));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  for (const Beginning& b : kBeginnings) {
    const std::string_view head = text.substr(0, b.bytes.size());
    if (std::ranges::equal(head, b.bytes, {}, lower)) return b.what;
  }
  return std::nullopt;
}

}  // namespace braid
