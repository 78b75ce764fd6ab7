// Processes that end, stop or are cut off while the others wait for them.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>

#include "braid/job/job.h"
#include "braid/job/orphan_segments.h"
#include "namespaces.h"
#include "processes.h"

namespace braid::job {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class JobDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_jobs()) GTEST_SKIP() << "this build has no UCX";
  }
};

// Waits for the end of a child, which stays a zombie. Five seconds beyond a job's timeout are the
// promise, and as many again are the test's patience on a busy machine.
void await_end(pid_t pid, std::chrono::milliseconds promised) {
  const auto deadline = std::chrono::steady_clock::now() + promised + milliseconds(5000);
  siginfo_t info{};
  while (std::chrono::steady_clock::now() < deadline) {
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid) {
      return;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  ADD_FAILURE() << "a process outlives another's death by more than its promise";
}

// Ends process `victim` by `how` once it is in its phase; the others wait for it.
std::vector<Ending> with_a_death(int victim, const std::function<void(pid_t)>& how,
                                 milliseconds timeout = milliseconds(1000),
                                 Phase phase = Phase::steps) {
  const Shared<std::atomic<bool>> there;
  return run_processes({.processes = 3,
                        .timeout = timeout,
                        .meanwhile =
                            [&](const std::vector<pid_t>& pids) {
                              for (int i = 0; i < 20000 && !*there; ++i) {
                                std::this_thread::sleep_for(milliseconds(1));
                              }
                              const pid_t pid = pids[static_cast<size_t>(victim)];
                              how(pid);
                              for (const pid_t other : pids) {
                                if (other != pid) await_end(other, timeout + milliseconds(5000));
                              }
                              kill(pid, SIGKILL);  // where it was only stopped
                            }},
                       [&](Job& job) {
                         job.phase(phase);
                         job.barrier("there");
                         if (job.process() == victim) {
                           std::this_thread::sleep_for(milliseconds(50));  // the phase is told
                           *there = true;
                           std::this_thread::sleep_for(std::chrono::seconds(100));
                         }
                         job.barrier("never");
                       });
}

void expect_all_name(const std::vector<Ending>& endings, int victim, const std::string& why,
                     Phase phase = Phase::steps) {
  for (int p = 0; p < std::ssize(endings); ++p) {
    const Ending& ending = endings[static_cast<size_t>(p)];
    if (p == victim) continue;
    EXPECT_EQ(ending.exit_status, 1);
    EXPECT_EQ(ending.code, ErrorCode::kAborted);
    EXPECT_THAT(ending.line,
                HasSubstr(fmt::format("rank {0} on {1}: ended in {4}, since rank {2} on {1} "
                                      "failed in {4}: {3}",
                                      p, host_name(), victim, why, to_string(phase))));
  }
}

TEST_F(JobDeathTest, AKilledProcessEndsAllAndIsNamed) {
  for (int victim : {0, 2}) {
    expect_all_name(with_a_death(victim, [](pid_t pid) { kill(pid, SIGKILL); }), victim,
                    "the process ended");
  }
}

TEST_F(JobDeathTest, ADeathIsNamedWithItsPhase) {
  for (const Phase phase : {Phase::start, Phase::loading, Phase::planning, Phase::first_step,
                            Phase::steps, Phase::drain}) {
    const auto kill_it = [](pid_t pid) { kill(pid, SIGKILL); };
    expect_all_name(with_a_death(1, kill_it, milliseconds(1000), phase), 1, "the process ended",
                    phase);
  }
}

// As often as BRAID_JOB_DEATHS says, in each phase, by each way, at each process in turn: 20 take
// ten minutes.
TEST_F(JobDeathTest, ManyDeaths) {
  const char* const times = std::getenv("BRAID_JOB_DEATHS");
  if (times == nullptr) GTEST_SKIP() << "a soak of BRAID_JOB_DEATHS deaths in each phase";
  struct Way {
    int signal;
    const char* why;
  };
  for (const Way& way : {Way{SIGKILL, "the process ended"}, Way{SIGSTOP, "no sign of life for"},
                         Way{SIGTERM, "SIGTERM: it was told to end"}}) {
    for (const Phase phase : {Phase::start, Phase::loading, Phase::planning, Phase::first_step,
                              Phase::steps, Phase::drain}) {
      for (int i = 0; i < std::atoi(times); ++i) {
        const int victim = i % 3;
        SCOPED_TRACE(
            fmt::format("signal {} at process {} in {}", way.signal, victim, to_string(phase)));
        const auto end_it = [&](pid_t pid) { kill(pid, way.signal); };
        expect_all_name(with_a_death(victim, end_it, milliseconds(1000), phase), victim, way.why,
                        phase);
      }
    }
  }
  EXPECT_EQ(remove_orphan_segments(), 0) << "segments were left behind";
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
  EXPECT_THAT(endings[0].line, HasSubstr("out of pages"));
}

TEST_F(JobDeathTest, ACutCableEndsAllAndIsNamed) {
  const Namespaces hosts(3);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  for (int victim : {0, 2}) {
    const Shared<std::atomic<int>> there;
    const auto endings =
        run_processes({.processes = 3,
                       .timeout = milliseconds(1500),
                       .host = Namespaces::address(0),
                       .launch = [&](int p, Launch&) { ASSERT_TRUE(hosts.enter(p)); },
                       .meanwhile =
                           [&](const std::vector<pid_t>&) {
                             for (int i = 0; i < 20000 && *there < 3; ++i) {
                               std::this_thread::sleep_for(milliseconds(1));
                             }
                             EXPECT_TRUE(hosts.cut(victim));
                           }},
                      [&](Job& job) {
                        job.phase(Phase::steps);
                        job.barrier("steps");
                        std::this_thread::sleep_for(milliseconds(50));  // the phase is told
                        ++*there;
                        if (job.process() == victim)
                          std::this_thread::sleep_for(std::chrono::seconds(5));
                        job.barrier("never");
                      });
    EXPECT_TRUE(hosts.join(victim));
    for (int p = 0; p < 3; ++p) {
      const Ending& ending = endings[static_cast<size_t>(p)];
      EXPECT_EQ(ending.exit_status, 1);
      EXPECT_EQ(ending.code, ErrorCode::kAborted);
      if (p == victim) continue;
      EXPECT_THAT(ending.line,
                  HasSubstr(fmt::format("rank {} on {}: ended in a step, since rank {} "
                                        "on {} failed in ",
                                        p, hosts.host_of(p), victim, hosts.host_of(victim))));
    }
  }
}

}  // namespace
}  // namespace braid::job
