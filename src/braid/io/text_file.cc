#include "braid/io/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "braid/base/error.h"
#include "braid/base/part_file.h"

namespace braid {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void write_file(const std::string& path, std::string_view bytes) {
  const std::string part = part_file(path);
  errno = 0;
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  if (out && (part == path || std::rename(part.c_str(), path.c_str()) == 0)) return;
  const int cause = errno;
  if (part != path) std::remove(part.c_str());
  fail(ErrorCode::kResource, "cannot write {}: {}", path, std::strerror(cause));
}

}  // namespace braid
