#include "braid/job/host_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "braid/base/error.h"

namespace braid::job {
namespace {

constexpr double kSmall = 64e6;  // bytes; a process takes some 10 MB

}  // namespace

std::vector<std::string> net_devices() {
  std::vector<std::string> names;
  std::error_code none;
  for (const char* kind : {"/sys/class/net", "/sys/class/infiniband"}) {
    for (std::filesystem::directory_iterator it(kind, none), end; it != end; it.increment(none)) {
      names.push_back(it->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

void require_net_devices(std::string_view wanted, const std::vector<std::string>& present) {
  // UCX has patterns, too, and reports faults in them itself.
  if (wanted == "all" || wanted.find_first_of("^*?[") != std::string_view::npos) return;
  while (!wanted.empty()) {
    const size_t comma = wanted.find(',');
    const std::string_view device = wanted.substr(0, comma);
    wanted = comma == std::string_view::npos ? "" : wanted.substr(comma + 1);
    const std::string_view name = device.substr(0, device.find(':'));  // mlx5_0:1 is a port
    if (std::ranges::find(present, name) != present.end()) continue;
    fail(ErrorCode::kResource, "UCX_NET_DEVICES names '{}': this host has {}", name,
         fmt::join(present, ", "));
  }
}

std::string chosen_net_devices(const char* wanted, const std::vector<std::string>& present) {
  if (wanted == nullptr || *wanted == 0) return "";
  return fmt::format(" (UCX_NET_DEVICES is '{}'; this host has {})", wanted,
                     fmt::join(present, ", "));
}

std::string small_shared_memory(const std::filesystem::path& folder) {
  struct statvfs found {};
  if (statvfs(folder.c_str(), &found) != 0) return fmt::format(" ({} is missing)", folder.string());
  const double free = static_cast<double>(found.f_bavail) * static_cast<double>(found.f_frsize);
  if (free >= kSmall) return "";
  return fmt::format(" ({} has {:.1f} MB free: docker run --shm-size=1g, or UCX_TLS=tcp,self)",
                     folder.string(), 1e-6 * free);
}

int64_t lockable_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

std::string small_memlock(int64_t lockable, int64_t rdma_cards) {
  if (rdma_cards == 0 || lockable < 0 || static_cast<double>(lockable) >= kSmall) return "";
  return fmt::format("{:.1f} MB may be locked, too little for {} RDMA card{}: ulimit -l unlimited",
                     1e-6 * static_cast<double>(lockable), rdma_cards, rdma_cards == 1 ? "" : "s");
}

}  // namespace braid::job
