#pragma once

#include <string>
#include <string_view>

namespace braid {

// The bytes of a whole file; fails with kNotFound for an unreadable path.
std::string read_text(const std::string& path);

// Writes a whole file, or leaves the old file: the bytes go to PATH.part first, to a device or a
// pipe at once. Fails with kResource.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace braid
