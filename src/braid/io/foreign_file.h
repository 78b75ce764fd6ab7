#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace braid {

// Recognizes files that people often have in a model's place, and names a remedy: a Git LFS
// pointer, a web page, a PyTorch archive, a compressed file, a GGML file from before GGUF. Nothing
// for other first bytes. The text follows the file's name and ": is " in a message.
std::optional<std::string_view> foreign_file(std::span<const std::byte> bytes);

}  // namespace braid
