#pragma once

#include <filesystem>
#include <optional>

namespace braid::cpu {

// CPUs' worth of time that control groups (v1 and v2) let this process use, such as 1.5: the least
// quota of its group and the groups around it. Nothing where no group has a quota or none can be
// read. `root` stands in front of /proc and of every mount point.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace braid::cpu
