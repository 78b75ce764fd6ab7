#include "braid/job/orphan_segments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

namespace braid::job {
namespace {

TEST(OrphanSegments, AreThoseThatNobodyHasOpen) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("braid_orphans_{}", getpid());
  fs::create_directories(folder);
  const auto make = [&](const char* name) {
    std::ofstream(folder / name) << "segment";
    return folder / name;
  };
  const fs::path orphan = make("ucx_shm_posix_1"), open_one = make("ucx_shm_posix_2"),
                 mapped = make("ucx_shm_posix_3"), other = make("shm_of_somebody");
  const std::ifstream holds(open_one);
  const int fd = open(mapped.c_str(), O_RDONLY);
  void* const memory = mmap(nullptr, 7, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  EXPECT_EQ(remove_orphan_segments(folder, std::chrono::seconds(3600)), 0);  // too young
  EXPECT_EQ(remove_orphan_segments(folder), 1);
  EXPECT_FALSE(fs::exists(orphan));
  for (const fs::path& kept : {open_one, mapped, other}) EXPECT_TRUE(fs::exists(kept)) << kept;
  munmap(memory, 7);
  EXPECT_EQ(remove_orphan_segments(folder), 1);
  EXPECT_EQ(remove_orphan_segments(folder / "none"), 0);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace braid::job
