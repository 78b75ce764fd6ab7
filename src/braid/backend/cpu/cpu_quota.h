#pragma once

#include <filesystem>
#include <optional>

namespace braid::cpu {

// CPUs' worth of time that control groups (v1 and v2) allow this process, such as 1.5: the least
// quota among its group and enclosing groups. Nothing without a readable quota. `root` stands in
// front of /proc and every mount point.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace braid::cpu
