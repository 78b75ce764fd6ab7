#include "braid/base/similar.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace braid {

namespace {

// Edits that turn `a` into each prefix of `b`: [b + 1].
std::vector<int> distances(std::string_view a, std::string_view b) {
  // Rows of a table: before[j] turns a's first i - 1 letters into b's first j.
  std::vector<int> earlier, before(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) before[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], earlier[j - 2] + 1);
      }
    }
    earlier = before;
    std::swap(before, row);
  }
  return before;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  return distances(a, b).back();
}

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names) {
  constexpr int kFar = 1 << 20;
  std::optional<std::string> best;
  std::pair<int, int> least = {kFar, kFar};
  for (const std::string& name : names) {
    const std::vector<int> prefixes = distances(word, name);
    const auto size = static_cast<int>(word.size());
    int begins = std::ranges::min(prefixes), whole = prefixes.back();
    if (size < 4 || begins > size / 4) begins = kFar;
    if (whole > std::max(1, std::max(size, static_cast<int>(name.size())) / 3)) whole = kFar;
    const std::pair distance = {std::min(begins, whole), whole};
    if (distance.first == kFar || !(distance < least)) continue;
    best = name;
    least = distance;
  }
  return best;
}

}  // namespace braid
