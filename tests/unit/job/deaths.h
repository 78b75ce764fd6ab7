#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>

#include "braid/job/job.h"
#include "namespaces.h"
#include "processes.h"

// In a job of three processes a process dies; the survivors' last lines are read.
namespace braid::job {

using std::chrono::milliseconds;

constexpr std::array<Phase, 6> kPhases = {Phase::start,      Phase::loading, Phase::planning,
                                          Phase::first_step, Phase::steps,   Phase::drain};

class JobDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_jobs()) GTEST_SKIP() << "this build has no UCX";
  }

  // Waits for the ends of children but `victim`, which stay zombies. Five seconds beyond a job's
  // timeout are the promise, and as many again are the test's patience on a busy machine.
  void await_ends(const std::vector<pid_t>& pids, pid_t victim, milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    const Clock::time_point deadline = begin + timeout + 2 * milliseconds(5000);
    for (const pid_t pid : pids) {
      siginfo_t info{};
      while (pid != victim && info.si_pid != pid) {
        if (Clock::now() > deadline) {
          ADD_FAILURE() << "a process outlives another's death by more than its promise";
          return;
        }
        std::this_thread::sleep_for(milliseconds(2));
        waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
      }
    }
    longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(Clock::now() - begin));
  }

  // Ends process `victim` by `how` once it is in its phase; the others wait for it. SIGUSR1 makes a
  // process exit with 7.
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
                                await_ends(pids, pid, timeout);
                                kill(pid, SIGKILL);  // where it was only stopped
                              }},
                         [&](Job& job) {
                           std::signal(SIGUSR1, [](int) { _exit(7); });
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
      EXPECT_THAT(ending.line, testing::HasSubstr(fmt::format(
                                   "rank {0} on {1}: ended in {4}, since rank {2} on {1} "
                                   "failed in {4}: {3}",
                                   p, host_name(), victim, why, to_string(phase))));
    }
  }

  // The cable of process `victim`'s host is cut once all processes are in their phase.
  void expect_a_cut_ends_all(const Namespaces& hosts, int victim, Phase phase) {
    const milliseconds timeout(1500);
    const Shared<std::atomic<int>> there;
    const auto endings =
        run_processes({.processes = 3,
                       .timeout = timeout,
                       .host = Namespaces::address(0),
                       .launch = [&](int p, Launch&) { ASSERT_TRUE(hosts.enter(p)); },
                       .meanwhile =
                           [&](const std::vector<pid_t>& pids) {
                             for (int i = 0; i < 20000 && *there < 3; ++i) {
                               std::this_thread::sleep_for(milliseconds(1));
                             }
                             EXPECT_TRUE(hosts.cut(victim));
                             await_ends(pids, 0, timeout);
                           }},
                      [&](Job& job) {
                        job.phase(phase);
                        job.barrier("there");
                        std::this_thread::sleep_for(milliseconds(50));  // the phase is told
                        ++*there;
                        if (job.process() == victim)
                          std::this_thread::sleep_for(milliseconds(2500));
                        job.barrier("never");
                      });
    EXPECT_TRUE(hosts.join(victim));
    for (int p = 0; p < 3; ++p) {
      const Ending& ending = endings[static_cast<size_t>(p)];
      EXPECT_EQ(ending.exit_status, 1);
      EXPECT_EQ(ending.code, ErrorCode::kAborted);
      if (p == victim) continue;
      EXPECT_THAT(ending.line,
                  testing::HasSubstr(fmt::format("rank {} on {}: ended in {}, since rank {} on {} "
                                                 "failed in {}: ",
                                                 p, hosts.host_of(p), to_string(phase), victim,
                                                 hosts.host_of(victim), to_string(phase))));
    }
  }

  milliseconds longest_{0};  // from a death to the last end
};

}  // namespace braid::job
