#pragma once

#include <span>
#include <string_view>

namespace braid::server {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

// Files of the page at `/`, which the build puts into the program.
std::span<const EmbeddedFile> page_files();

}  // namespace braid::server
