#pragma once

#include <chrono>
#include <filesystem>

namespace braid::job {

// Removes this user's files ucx_shm_posix_* in `folder` that no process has open. UCX removes each
// name right after it has opened the segment, so such a file comes from a process killed in
// between. Files younger than `age` stay. Returns the number of removed files; fails never.
int remove_orphan_segments(const std::filesystem::path& folder = "/dev/shm",
                           std::chrono::seconds age = std::chrono::seconds(0));

}  // namespace braid::job
