// Processes that end, stop or are cut off while the others wait for them.
#include "unit/job/deaths.h"

namespace braid::job {
namespace {

TEST_F(JobDeathTest, AKilledProcessEndsAllAndIsNamed) {
  for (int victim : {0, 2}) {
    expect_all_name(with_a_death(victim, [](pid_t pid) { kill(pid, SIGKILL); }), victim,
                    "the process ended");
  }
}

TEST_F(JobDeathTest, ADeathIsNamedWithItsPhase) {
  for (const Phase phase : kPhases) {
    const auto kill_it = [](pid_t pid) { kill(pid, SIGKILL); };
    expect_all_name(with_a_death(1, kill_it, milliseconds(1000), phase), 1, "the process ended",
                    phase);
  }
}

TEST_F(JobDeathTest, AStoppedProcessEndsAllAndIsNamed) {
  for (int victim : {0, 1}) {
    expect_all_name(with_a_death(victim, [](pid_t pid) { kill(pid, SIGSTOP); }), victim,
                    "no sign of life for 1 s");
  }
}

TEST_F(JobDeathTest, AProcessThatIsToldToEndEndsAll) {
  expect_all_name(with_a_death(1, [](pid_t pid) { kill(pid, SIGTERM); }), 1,
                  "SIGTERM: it was told to end");
}

TEST_F(JobDeathTest, AProcessThatExitsEndsAll) {
  const auto endings = run_processes({.processes = 3}, [](Job& job) {
    job.phase(Phase::steps);
    job.barrier("steps");
    if (job.process() == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      _exit(7);
    }
    job.barrier("never");
  });
  EXPECT_EQ(endings[2].exit_status, 7);
  expect_all_name(endings, 2, "the process ended");
}

TEST_F(JobDeathTest, AProcessThatHangsAfterAFailureIsEnded) {
  const auto endings = run_processes({.processes = 2, .grace = milliseconds(300)}, [](Job& job) {
    job.barrier("start");
    if (job.process() == 1) fail(ErrorCode::kResource, "out of pages");
    std::this_thread::sleep_for(std::chrono::seconds(100));
  });
  EXPECT_EQ(endings[0].exit_status, 1);
  EXPECT_THAT(endings[0].line, testing::HasSubstr("out of pages"));
}

TEST_F(JobDeathTest, ACutCableEndsAllAndIsNamed) {
  const Namespaces hosts(3);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  for (int victim : {0, 2}) expect_a_cut_ends_all(hosts, victim, Phase::steps);
}

}  // namespace
}  // namespace braid::job
