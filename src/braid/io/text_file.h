#pragma once

#include <string>

namespace braid {

// The bytes of a whole file; fails with kNotFound where it cannot be opened.
std::string read_text(const std::string& path);

}  // namespace braid
