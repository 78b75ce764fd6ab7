#pragma once

#include <string>
#include <vector>

namespace braid {

// Puts a line in front of the others, as plans are listed; each line once, and few lines in all.
inline void add_newest(std::vector<std::string>& lines, const std::string& line) {
  constexpr size_t kLines = 16;
  std::erase(lines, line);
  lines.insert(lines.begin(), line);
  if (lines.size() > kLines) lines.pop_back();
}

}  // namespace braid
