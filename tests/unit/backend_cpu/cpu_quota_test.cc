#include "braid/backend/cpu/cpu_quota.h"

#include <gtest/gtest.h>

#include <fstream>

#include "unit/io/temp_folder.h"

namespace braid::cpu {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class CpuQuota : public testing::Test {
 protected:
  void put(const fs::path& path, const std::string& text) {
    const fs::path full = root_.path(path.relative_path().string());
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  std::optional<double> quota() const { return cpu_quota(root_.path("")); }

  const test::TempFolder root_;
};

constexpr const char* kMountV1 =
    "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct";
constexpr const char* kMountV2 = "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw";

TEST_F(CpuQuota, NothingToReadIsNoQuota) {
  EXPECT_EQ(quota(), std::nullopt);
  put("/proc/self/mountinfo", "not a mount\n1 2 3\n- - -\n29 23 0:26 / /sys rw - cgroup2");
  put("/proc/self/cgroup", "nonsense");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, V1) {
  put("/proc/self/mountinfo", kMountV1);
  put("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/a/b\n0::/");
  EXPECT_EQ(quota(), std::nullopt);
  put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1");
  put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), std::nullopt);
  put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "20000");
  EXPECT_EQ(quota(), 0.2);
  // A quota of cpuset's group of that name is none of ours.
  put("/sys/fs/cgroup/cpuset/a/b/cpu.cfs_quota_us", "1000");
  put("/sys/fs/cgroup/cpuset/a/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 0.2);
}

TEST_F(CpuQuota, V2) {
  put("/proc/self/mountinfo", kMountV2);
  put("/proc/self/cgroup", "0::/user.slice/app");
  put("/sys/fs/cgroup/user.slice/app/cpu.max", "max 100000");
  EXPECT_EQ(quota(), std::nullopt);
  put("/sys/fs/cgroup/user.slice/app/cpu.max", "150000 100000");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, TheLeastOfAGroupAndThoseAroundIt) {
  put("/proc/self/mountinfo", kMountV2);
  put("/proc/self/cgroup", "0::/a/b");
  put("/sys/fs/cgroup/a/b/cpu.max", "800000 100000");
  put("/sys/fs/cgroup/a/cpu.max", "25000 10000");
  EXPECT_EQ(quota(), 2.5);
  put("/sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(quota(), 1.0);
  // Both versions at once.
  put("/proc/self/mountinfo", std::string(kMountV1) + "\n" + kMountV2);
  put("/proc/self/cgroup", "4:cpu:/c\n0::/a/b");
  put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000");
  put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, AContainerSeesItsGroupAtTheTop) {
  // The group as the host names it, of which the mount shows a part.
  put("/proc/self/mountinfo",
      "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu");
  put("/proc/self/cgroup", "4:cpu:/docker/abc");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 3.0);
  put("/proc/self/cgroup", "4:cpu:/docker/abc/inner");
  EXPECT_EQ(quota(), 3.0);
  // A group that the mount does not show.
  put("/proc/self/cgroup", "4:cpu:/../elsewhere");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(CpuQuota, AMountPointWithASpace) {
  put("/proc/self/mountinfo", "29 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw");
  put("/proc/self/cgroup", "0::/");
  put("/my groups/cpu.max", "70000 100000");
  EXPECT_EQ(quota(), 0.7);
}

}  // namespace
}  // namespace braid::cpu
