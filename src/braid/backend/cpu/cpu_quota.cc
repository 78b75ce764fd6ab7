#include "braid/backend/cpu/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <ranges>
#include <sstream>
#include <string>
#include <vector>

namespace braid::cpu {
namespace {

namespace fs = std::filesystem;

enum class Version { v1, v2 };

// Mount point of a hierarchy that may limit CPU time: `mount` shows the group `top`.
struct Hierarchy {
  Version version = Version::v1;
  std::string top;
  std::string mount;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool names_cpu(const std::string& controllers) {
  return std::ranges::count(split(controllers, ','), "cpu") > 0;
}

// mountinfo spells space, tab, line feed and backslash as \ooo.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 4], code, 8).ptr == &text[i + 4]) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "36 35 98:0 /top /mount options [optional ...] - type source super-options"
std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (!v2 && (dash[1] != "cgroup" || !names_cpu(dash[3]))) continue;
    found.push_back({v2 ? Version::v2 : Version::v1, unescape(fields[3]), unescape(fields[4])});
  }
  return found;
}

// This process' group: "0::/path" in v2, "4:cpu,cpuacct:/path" in v1.
std::optional<std::string> group_of(Version version, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version == Version::v2 ? controllers.empty() : names_cpu(controllers)) {
      return line.substr(second + 1);
    }
  }
  return {};
}

// The whole numbers of a file's first line, up to "max".
std::vector<int64_t> numbers(const fs::path& path) {
  std::ifstream file(path);
  std::vector<int64_t> all;
  for (int64_t n = 0; file >> n;) all.push_back(n);
  return all;
}

std::optional<double> quota_of(Version version, const fs::path& group) {
  std::vector<int64_t> limit;  // microseconds of CPU time, per period of so many microseconds
  if (version == Version::v2) {
    limit = numbers(group / "cpu.max");
  } else {
    limit = numbers(group / "cpu.cfs_quota_us");
    std::ranges::copy(numbers(group / "cpu.cfs_period_us"), std::back_inserter(limit));
  }
  if (limit.size() < 2 || limit[0] <= 0 || limit[1] <= 0) return {};
  return static_cast<double>(limit[0]) / static_cast<double>(limit[1]);
}

// The group as a path below the mount point. A group outside the mount (in a container that sees
// itself alone) is looked at from the top.
fs::path below(const std::string& top, const std::string& group) {
  const fs::path relative = fs::path(group).lexically_relative(top);
  return relative.empty() || *relative.begin() == ".." || relative == "." ? fs::path() : relative;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for (const Hierarchy& hierarchy : hierarchies(root)) {
    const std::optional<std::string> group = group_of(hierarchy.version, root);
    if (!group) continue;
    const fs::path mount = root / fs::path(hierarchy.mount).relative_path();
    for (fs::path path = below(hierarchy.top, *group);; path = path.parent_path()) {
      if (const auto quota = quota_of(hierarchy.version, mount / path)) {
        least = std::min(least.value_or(*quota), *quota);
      }
      if (path.empty()) break;
    }
  }
  return least;
}

}  // namespace braid::cpu
