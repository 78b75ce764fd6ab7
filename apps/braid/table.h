#pragma once

#include <string>
#include <vector>

namespace braid::app {

// A Markdown table whose columns line up in a terminal. The first row is the head; `right` says
// which columns hold numbers.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& right);

}  // namespace braid::app
