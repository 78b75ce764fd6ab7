#include "braid/job/job.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>

#include "braid/base/clock.h"
#include "namespaces.h"
#include "processes.h"

namespace braid::job {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class JobTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!has_jobs()) GTEST_SKIP() << "this build has no UCX";
  }
};

void expect_all_done(const std::vector<Ending>& endings) {
  for (size_t p = 0; p < endings.size(); ++p) {
    EXPECT_TRUE(endings[p].done) << "process " << p << ": " << endings[p].text << ", signal "
                                 << endings[p].signal;
  }
}

TEST_P(JobTest, ProcessesMeetAndExchange) {
  const int n = GetParam();
  expect_all_done(run_processes({.processes = n}, [n](Job& job) {
    EXPECT_EQ(job.processes(), n);
    EXPECT_EQ(job.members()[static_cast<size_t>(job.process())].pid, getpid());
    const std::string mine = std::string(static_cast<size_t>(job.process()) * 300'000, 'x');
    const auto all = job.gather("sizes", mine);
    ASSERT_EQ(std::ssize(all), job.process() == 0 ? n : 0);
    for (size_t p = 0; p < all.size(); ++p) EXPECT_EQ(all[p], std::string(p * 300'000, 'x'));
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(job.broadcast("word", job.process() == 0 ? fmt::format("round {}", i) : ""),
                fmt::format("round {}", i));
    }
    job.agree("the answer", "42");
    job.barrier("here");
  }));
}

// The fastest of the exchanges has half of its time as error: processes of one clock know.
TEST_P(JobTest, ClocksAreCompared) {
  expect_all_done(run_processes({.processes = GetParam()}, [](Job& job) {
    const double begin = steady_seconds();
    const std::vector<double> ahead = job.clocks_ahead();
    const double all = steady_seconds() - begin;
    ASSERT_EQ(std::ssize(ahead), job.process() == 0 ? job.processes() : 0);
    for (double seconds : ahead) EXPECT_LT(std::abs(seconds), all / 32);
  }));
}

INSTANTIATE_TEST_SUITE_P(Processes, JobTest, testing::Values(2, 3, 4, 8));

TEST_F(JobTest, ABarrierHoldsAllUntilTheLastIsThere) {
  const Shared<std::atomic<int>> arrived;
  expect_all_done(run_processes({.processes = 4}, [&](Job& job) {
    for (int step = 1; step <= 20; ++step) {
      if (step % 4 == job.process()) std::this_thread::sleep_for(milliseconds(1));
      ++*arrived;
      job.barrier("step");
      EXPECT_GE(arrived->load(), step * 4);
    }
  }));
}

TEST_F(JobTest, RecordsComeInOrderAndAtMostTwoAhead) {
  const Shared<std::atomic<int>> sent;
  expect_all_done(run_processes({.processes = 3}, [&](Job& job) {
    constexpr int kRecords = 200;
    for (int i = 0; i < kRecords; ++i) {
      const std::string record = std::string(static_cast<size_t>(i * 97), 'r') + std::to_string(i);
      if (job.process() == 0) {
        job.send_record(record);
        ++*sent;
      } else {
        EXPECT_EQ(job.next_record(), record);
        EXPECT_LE(sent->load(), i + 4);
      }
    }
  }));
}

TEST_F(JobTest, DisagreementNamesBothValues) {
  const auto endings = run_processes({.processes = 3}, [](Job& job) {
    job.agree("model files", job.process() == 2 ? "b.gguf" : "a.gguf");
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.exit_status, 1);
    EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(std::string(ending.text),
              fmt::format("model files differ: rank 0 on {0} has 'a.gguf', rank 2 on {0} has "
                          "'b.gguf'",
                          host_name()));
  }
}

TEST_F(JobTest, DifferentCallsAreNamed) {
  const auto endings = run_processes(
      {.processes = 2}, [](Job& job) { job.barrier(job.process() == 0 ? "chat" : "bench"); });
  for (const Ending& ending : endings) EXPECT_THAT(ending.text, HasSubstr("is at 'chat'"));
}

TEST_F(JobTest, OneErrorEndsAll) {
  const auto endings = run_processes({.processes = 3}, [](Job& job) {
    job.phase(Phase::loading);
    job.barrier("loading");
    if (job.process() == 1) fail(ErrorCode::kMalformed, "weights of layer 3 are torn");
    job.barrier("loaded");
  });
  for (int p = 0; p < 3; ++p) {
    const Ending& ending = endings[static_cast<size_t>(p)];
    EXPECT_EQ(ending.exit_status, 1);
    EXPECT_EQ(ending.failed_here, p == 1);
    EXPECT_EQ(ending.code, ErrorCode::kMalformed);
    EXPECT_STREQ(ending.text, "weights of layer 3 are torn");
  }
  EXPECT_EQ(std::string(endings[1].line),
            fmt::format("rank 1 on {}: weights of layer 3 are torn", host_name()));
  EXPECT_EQ(std::string(endings[0].line),
            fmt::format("rank 0 on {0}: ended in loading, since rank 1 on {0} failed in loading: "
                        "weights of layer 3 are torn",
                        host_name()));
}

TEST_F(JobTest, WhoDoesNotComeIsNamed) {
  const auto endings =
      run_processes({.processes = 3,
                     .timeout = milliseconds(1500),
                     .meanwhile = [](const std::vector<pid_t>& pids) { kill(pids[2], SIGKILL); }},
                    [](Job&) {});
  EXPECT_EQ(endings[0].code, ErrorCode::kDeadline);
  EXPECT_THAT(endings[0].text, HasSubstr("for 3 processes, of which these did not come: 2"));
  EXPECT_THAT(endings[1].text, HasSubstr("these did not come: 2"));
}

TEST_F(JobTest, WithoutProcess0NobodyIsFound) {
  const auto endings =
      run_processes({.processes = 2,
                     .timeout = milliseconds(500),
                     .meanwhile = [](const std::vector<pid_t>& pids) { kill(pids[0], SIGKILL); }},
                    [](Job&) {});
  EXPECT_EQ(endings[1].code, ErrorCode::kDeadline);
  EXPECT_THAT(endings[1].text, HasSubstr("process 1 found nobody at 127.0.0.1 port"));
  EXPECT_THAT(endings[1].text, HasSubstr("127.0.0.1 (loopback)"));
}

// On its own host process 1 finds its own loopback address.
TEST_F(JobTest, ALoopbackAddressOnAnotherHostIsNamed) {
  const Namespaces hosts(2);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  const auto endings = run_processes({.processes = 2,
                                      .timeout = milliseconds(1000),
                                      .host = Namespaces::address(0),
                                      .launch =
                                          [&](int p, Launch& launch) {
                                            ASSERT_TRUE(hosts.enter(p));
                                            if (p == 1) launch.host = "127.0.0.1";
                                          }},
                                     [](Job&) {});
  EXPECT_EQ(endings[1].code, ErrorCode::kDeadline);
  EXPECT_THAT(endings[1].text, HasSubstr("process 1 found nobody at 127.0.0.1 port"));
  EXPECT_THAT(endings[1].text, HasSubstr("127.0.0.1 (loopback)"));
  EXPECT_THAT(endings[0].text, HasSubstr("these did not come: 1"));
}

// The interface exists, and leads nowhere.
TEST_F(JobTest, AnInterfaceWithoutARouteIsNamedBesideTheOthers) {
  const Namespaces hosts(2);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  const auto endings = run_processes({.processes = 2,
                                      .timeout = milliseconds(1500),
                                      .host = Namespaces::address(0),
                                      .launch =
                                          [&](int p, Launch&) {
                                            ASSERT_TRUE(hosts.enter(p));
                                            if (p == 1) setenv("UCX_NET_DEVICES", "lo", 1);
                                          }},
                                     [](Job& job) { job.barrier("here"); });
  EXPECT_THAT(endings[1].text, HasSubstr("process 1 found nobody at"));
  EXPECT_THAT(endings[1].text, HasSubstr("UCX_NET_DEVICES is 'lo'; this host has "));
  EXPECT_THAT(endings[1].text, HasSubstr("eth0"));
  EXPECT_THAT(endings[0].text, HasSubstr("these did not come: 1"));
}

TEST_F(JobTest, RefusesTwoProcessesOfOneNumberAndSizesThatDiffer) {
  auto endings = run_processes({.processes = 3,
                                .timeout = milliseconds(3000),
                                .launch =
                                    [](int, Launch& launch) {
                                      if (launch.process == 2) launch.process = 1;
                                    }},
                               [](Job&) {});
  EXPECT_EQ(endings[0].code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(endings[0].text, HasSubstr("two processes say that they are process 1"));
  endings = run_processes({.processes = 2,
                           .timeout = milliseconds(3000),
                           .launch =
                               [](int p, Launch& launch) {
                                 if (p == 1) launch.processes = 3;
                               }},
                          [](Job&) {});
  for (const Ending& ending : endings) {
    EXPECT_THAT(ending.text, HasSubstr("process 0 was told of 2 processes, process 1 of 3"));
  }
}

TEST_F(JobTest, APortThatIsTakenAndAHostThatIsNotHereAreNamed) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const int port = ntohs(address.sin_port);
  auto endings =
      run_processes({.processes = 2, .timeout = milliseconds(500), .port = port}, [](Job&) {});
  close(fd);
  EXPECT_THAT(endings[0].text, HasSubstr(fmt::format("cannot listen at 127.0.0.1 port {}", port)));
  endings = run_processes({.processes = 2, .timeout = milliseconds(500), .host = "192.0.2.1"},
                          [](Job&) {});
  EXPECT_THAT(endings[0].text, HasSubstr("cannot listen at 192.0.2.1"));
  endings = run_processes({.processes = 2, .timeout = milliseconds(500), .host = "no.such.invalid"},
                          [](Job&) {});
  EXPECT_THAT(endings[1].text, HasSubstr("host 'no.such.invalid' has no address"));
}

// One at the port says nothing, one says something else, one closes at once.
TEST_F(JobTest, StrangersAtThePortAreIgnored) {
  const int port = free_port();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> silent;
  expect_all_done(run_processes(
      {.processes = 3,
       .port = port,
       .launch =
           [](int p, Launch&) {
             if (p > 0) std::this_thread::sleep_for(milliseconds(400));
           },
       .meanwhile =
           [&](const std::vector<pid_t>&) {
             for (const char* words : {"", "GET / HTTP/1.1\r\n\r\n", "bye"}) {
               const int fd = socket(AF_INET, SOCK_STREAM, 0);
               for (int i = 0; i < 300 && connect(fd, reinterpret_cast<sockaddr*>(&address),
                                                  sizeof(address)) != 0;
                    ++i) {
                 std::this_thread::sleep_for(milliseconds(1));
               }
               if (*words != 0) EXPECT_GT(send(fd, words, std::strlen(words), MSG_NOSIGNAL), 0);
               *words == 'b' ? void(close(fd)) : silent.push_back(fd);
             }
           }},
      [](Job& job) { job.barrier("here"); }));
  for (const int fd : silent) close(fd);
}

TEST_F(JobTest, ASecondStartWorksAtOnce) {
  const int port = free_port();
  for (int i = 0; i < 3; ++i) {
    const auto endings = run_processes({.processes = 2, .port = port}, [&](Job& job) {
      if (i == 1 && job.process() == 0) raise(SIGKILL);
      job.barrier("here");
    });
    EXPECT_EQ(endings[1].done, i != 1) << endings[0].text << "; " << endings[1].text;
  }
}

}  // namespace
}  // namespace braid::job
