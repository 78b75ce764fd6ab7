#include "braid/table.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid::app {
namespace {

// Width of UTF-8 text with narrow characters, as "±".
size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t width(const TableColumn& column) {
  return std::max({column.width, width(column.name), size_t{3}});
}

}  // namespace

void TableColumn::widen(const std::string& cell) {
  width = std::max(width, app::width(cell));
}

std::string table_row(const std::vector<TableColumn>& columns,
                      const std::vector<std::string>& row) {
  BRAID_CHECK(row.size() == columns.size());
  std::string out;
  for (size_t c = 0; c < columns.size(); ++c) {
    const size_t wanted = width(columns[c]), has = width(row[c]);
    const std::string pad(wanted > has ? wanted - has : 0, ' ');
    out += columns[c].right ? "| " + pad + row[c] + " " : "| " + row[c] + pad + " ";
  }
  return out + "|\n";
}

std::string table_head(const std::vector<TableColumn>& columns) {
  std::vector<std::string> names;
  for (const TableColumn& column : columns) names.push_back(column.name);
  std::string out = table_row(columns, names);
  for (const TableColumn& column : columns) {
    out += "|" + std::string(width(column) + (column.right ? 1 : 2), '-');
    if (column.right) out += ":";
  }
  return out + "|\n";
}

std::string table_text(std::vector<TableColumn> columns,
                       const std::vector<std::vector<std::string>>& rows) {
  for (const auto& row : rows) {
    for (size_t c = 0; c < columns.size(); ++c) columns[c].widen(row.at(c));
  }
  std::string out = table_head(columns);
  for (const auto& row : rows) out += table_row(columns, row);
  return out;
}

}  // namespace braid::app
