#include "braid/job/host_checks.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "braid/base/error.h"

namespace braid::job {
namespace {

TEST(HostChecks, DevicesThatAreNotThereAreNamedWithThoseThatAre) {
  const std::vector<std::string> present = {"eth0", "lo", "mlx5_0"};
  for (const char* good : {"", "all", "eth0", "lo,eth0", "mlx5_0:1,eth0", "^eth9", "eth9*"}) {
    EXPECT_NO_THROW(require_net_devices(good, present)) << good;
  }
  for (const char* wrong : {"eth9", "eth0,eth9", "eth9:1", "eth9,eth0"}) {
    try {
      require_net_devices(wrong, present);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_STREQ(error.what(), "UCX_NET_DEVICES names 'eth9': this host has eth0, lo, mlx5_0");
    }
  }
}

TEST(HostChecks, TheChosenDevicesStandBesideThePresentOnes) {
  EXPECT_EQ(chosen_net_devices("lo", {"eth0", "lo"}),
            " (UCX_NET_DEVICES is 'lo'; this host has eth0, lo)");
  EXPECT_EQ(chosen_net_devices("", {"eth0"}), "");
  EXPECT_EQ(chosen_net_devices(nullptr, {"eth0"}), "");
}

TEST(HostChecks, ThisHostHasALoopbackInterface) {
  EXPECT_THAT(net_devices(), testing::Contains("lo"));
}

TEST(HostChecks, SmallSharedMemoryIsSaid) {
  // The system's tables of no size at all.
  EXPECT_EQ(small_shared_memory("/proc"),
            " (/proc has 0.0 MB free: docker run --shm-size=1g, or UCX_TLS=tcp,self)");
  EXPECT_EQ(small_shared_memory("/no/such/folder"), " (/no/such/folder is missing)");
}

TEST(HostChecks, LittleLockableMemoryIsSaidWhereCardsNeedIt) {
  EXPECT_EQ(small_memlock(65536, 2),
            "0.1 MB may be locked, too little for 2 RDMA cards: ulimit -l unlimited");
  EXPECT_EQ(small_memlock(65536, 0), "");
  EXPECT_EQ(small_memlock(-1, 2), "");
  EXPECT_EQ(small_memlock(int64_t{1} << 30, 2), "");
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit limit{65536, 65536};
    _exit(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && lockable_bytes() == 65536 ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace braid::job
