// Deaths in every phase, as often as BRAID_JOB_DEATHS says: 20 of each take ten minutes in all.
#include <cstdlib>

#include "braid/job/orphan_segments.h"
#include "unit/job/deaths.h"

namespace braid::job {
namespace {

class ManyDeathsTest : public JobDeathTest {
 protected:
  void SetUp() override {
    JobDeathTest::SetUp();
    const char* const times = std::getenv("BRAID_JOB_DEATHS");
    if (times == nullptr) GTEST_SKIP() << "a soak of BRAID_JOB_DEATHS deaths of each kind";
    times_ = std::atoi(times);
  }
  void TearDown() override {
    EXPECT_EQ(remove_orphan_segments(), 0) << "segments were left behind";
    if (times_ > 0) std::printf("longest: %lld ms\n", static_cast<long long>(longest_.count()));
  }

  // Each process in turn dies by the signal, in each phase.
  void expect_all_name_deaths(int signal, const char* why) {
    for (const Phase phase : kPhases) {
      for (int i = 0; i < times_; ++i) {
        const int victim = i % 3;
        SCOPED_TRACE(fmt::format("death {} at process {} in {}", i, victim, to_string(phase)));
        const auto end_it = [&](pid_t pid) { kill(pid, signal); };
        expect_all_name(with_a_death(victim, end_it, milliseconds(1000), phase), victim, why,
                        phase);
      }
    }
  }

  int times_ = 0;
};

TEST_F(ManyDeathsTest, Killed) {
  expect_all_name_deaths(SIGKILL, "the process ended");
}

TEST_F(ManyDeathsTest, Stopped) {
  expect_all_name_deaths(SIGSTOP, "no sign of life for");
}

TEST_F(ManyDeathsTest, ToldToEnd) {
  expect_all_name_deaths(SIGTERM, "SIGTERM: it was told to end");
}

TEST_F(ManyDeathsTest, Exited) {
  expect_all_name_deaths(SIGUSR1, "the process ended");  // exit 7
}

TEST_F(ManyDeathsTest, CutOff) {
  const Namespaces hosts(3);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  for (const Phase phase : kPhases) {
    for (int i = 0; i < times_; ++i) {
      SCOPED_TRACE(fmt::format("cut {} at process {} in {}", i, i % 3, to_string(phase)));
      expect_a_cut_ends_all(hosts, i % 3, phase);
    }
  }
}

TEST_F(ManyDeathsTest, NeverCame) {
  for (int i = 0; i < times_; ++i) {
    const int victim = i % 3;
    SCOPED_TRACE(fmt::format("absence {} of process {}", i, victim));
    const milliseconds timeout(500);
    const auto endings =
        run_processes({.processes = 3,
                       .timeout = timeout,
                       .launch =
                           [&](int p, Launch&) {
                             if (p == victim) _exit(0);
                           },
                       .meanwhile =
                           [&](const std::vector<pid_t>& pids) {
                             await_ends(pids, pids[static_cast<size_t>(victim)], timeout);
                           }},
                      [](Job&) {});
    for (int p = 0; p < 3; ++p) {
      if (p == victim) continue;
      const Ending& ending = endings[static_cast<size_t>(p)];
      EXPECT_EQ(ending.exit_status, 1);
      // Who came is told by process 0.
      EXPECT_EQ(ending.code, p == 0 || victim == 0 ? ErrorCode::kDeadline : ErrorCode::kAborted);
      EXPECT_THAT(ending.text,
                  testing::HasSubstr(victim == 0 ? fmt::format("process {} found nobody at", p)
                                                 : fmt::format("did not come: {}", victim)));
    }
  }
}

}  // namespace
}  // namespace braid::job
