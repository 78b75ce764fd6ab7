#pragma once

#include <string>
#include <vector>

namespace braid::app {

struct TableColumn {
  std::string name;
  bool right = false;  // numbers end at one edge
  size_t width = 0;    // characters: at least the name's, and at least 3

  void widen(const std::string& cell);
};

// A Markdown table with columns that line up in a terminal, whole or row by row. A cell wider than
// its column moves the rest of the row.
std::string table_head(const std::vector<TableColumn>& columns);
std::string table_row(const std::vector<TableColumn>& columns, const std::vector<std::string>& row);
std::string table_text(std::vector<TableColumn> columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace braid::app
