#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace braid {

// What a file is that people often have in a model's place, and what to do about it: a Git LFS
// pointer, a web page, a PyTorch archive, a compressed file, a GGML file from before GGUF. Nothing
// where the first bytes tell of none of them. Follows the file's name and ": is " in a message.
std::optional<std::string_view> foreign_file(std::span<const std::byte> bytes);

}  // namespace braid
