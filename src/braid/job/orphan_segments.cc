#include "braid/job/orphan_segments.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <set>
#include <vector>

namespace braid::job {
namespace {

namespace fs = std::filesystem;

using Node = std::pair<dev_t, ino_t>;

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; it != end; it.increment(none)) {
    found.push_back(it->path());
  }
  return found;
}

// Files open or mapped in a process, over all processes that this user may look into.
std::set<Node> files_in_use() {
  std::set<Node> used;
  for (const fs::path& process : entries("/proc")) {
    if (process.filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    for (const char* kind : {"fd", "map_files"}) {
      for (const fs::path& file : entries(process / kind)) {
        struct stat found {};
        if (stat(file.c_str(), &found) == 0) used.insert({found.st_dev, found.st_ino});
      }
    }
  }
  return used;
}

}  // namespace

int remove_orphan_segments(const fs::path& folder, std::chrono::seconds age) {
  std::vector<std::pair<fs::path, Node>> suspects;
  for (const fs::path& path : entries(folder)) {
    struct stat found {};
    if (!path.filename().string().starts_with("ucx_shm_posix_")) continue;
    if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    if (found.st_uid != geteuid() || time(nullptr) - found.st_ctime < age.count()) continue;
    suspects.push_back({path, {found.st_dev, found.st_ino}});
  }
  if (suspects.empty()) return 0;
  const std::set<Node> used = files_in_use();
  int removed = 0;
  for (const auto& [path, node] : suspects) {
    if (!used.contains(node) && unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace braid::job
