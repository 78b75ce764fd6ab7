#include "braid/io/text_file.h"

#include <fstream>
#include <sstream>

#include "braid/base/error.h"

namespace braid {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace braid
