#include "braid/table.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid::app {
namespace {

// Of UTF-8 text of narrow characters, as "±".
size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& right) {
  std::vector<size_t> widths(right.size(), 3);
  for (const auto& row : rows) BRAID_CHECK(row.size() == right.size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < right.size(); ++c) {
      const std::string pad(widths[c] - width(rows[r][c]), ' ');
      out += right[c] ? "| " + pad + rows[r][c] + " " : "| " + rows[r][c] + pad + " ";
    }
    out += "|\n";
    if (r > 0) continue;
    for (size_t c = 0; c < right.size(); ++c) {
      out += right[c] ? "|" + std::string(widths[c] + 1, '-') + ":"
                      : "|" + std::string(widths[c] + 2, '-');
    }
    out += "|\n";
  }
  return out;
}

}  // namespace braid::app
