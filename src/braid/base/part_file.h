#pragma once

#include <filesystem>
#include <string>

namespace braid {

// The name under which the file at `path` is written until the file is whole: PATH.part, or PATH
// itself for a device or a pipe, which a rename would replace.
inline std::string part_file(const std::string& path) {
  std::error_code ignored;
  const bool plain =
      !std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored);
  return plain ? path + ".part" : path;
}

}  // namespace braid
