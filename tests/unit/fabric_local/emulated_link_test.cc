#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "braid/fabric/local/run_ranks.h"

// Times are checked against lower bounds and against each other only: a busy machine is late.
namespace braid::fabric {
namespace {

using std::chrono::duration;

double seconds_since(Clock::time_point start) {
  return duration<double>(Clock::now() - start).count();
}

LocalFabricConfig slow(int ranks, double bytes_per_second, double latency) {
  return {.ranks = ranks,
          .links = {.machines = ranks, .cluster_link = Link{bytes_per_second, latency}}};
}

// Every rank has signalled every other one.
void meet(Endpoint& e, const SymBuf<Signal>& slots, uint64_t epoch) {
  for (int r = 0; r < e.world_size(); ++r) e.signal(slots.at(), r, SignalOp::add, 1, {});
  e.wait(slots.at(), epoch * e.world_size(), {});
}

TEST(EmulatedLink, TakesBytesOverBandwidthPlusLatency) {
  constexpr int64_t kBytes = 1 << 20;
  run_ranks(slow(2, 100e6, 3e-3), [](Endpoint& e) {  // 10.5 ms + 3 ms
    const auto data = e.allocate<std::byte>(kBytes, "data");
    const auto slots = e.allocate<Signal>(2, "slots");
    std::vector<std::byte> src(kBytes, static_cast<std::byte>(e.rank() + 1));
    const auto start = Clock::now();
    e.put(data.at(), 1 - e.rank(), src.data(), kBytes, {});
    EXPECT_GE(seconds_since(start), kBytes / 100e6);  // the source is free, not yet there
    e.signal(slots.at(), 1 - e.rank(), SignalOp::set, 1, {});
    e.wait(slots.at(), 1, {});
    for (std::byte b : data.local()) ASSERT_EQ(b, static_cast<std::byte>(2 - e.rank()));

    meet(e, {slots}, 1);
    const auto get_start = Clock::now();
    e.get(src.data(), data.at(), 1 - e.rank(), kBytes, {});
    EXPECT_GE(seconds_since(get_start), kBytes / 100e6 + 2 * 3e-3);  // request and reply
    for (std::byte b : src) ASSERT_EQ(b, static_cast<std::byte>(e.rank() + 1));
    meet(e, {slots}, 2);
  });
}

TEST(EmulatedLink, ASignalTakesTheLatency) {
  run_ranks(slow(2, 1e9, 4e-3), [](Endpoint& e) {
    const auto slots = e.allocate<Signal>(1, "slots");
    const auto start = Clock::now();
    if (e.rank() == 0) {
      e.signal(slots.at(), 1, SignalOp::add, 1, {});
      e.wait(slots.at(), 1, {});
      EXPECT_GE(seconds_since(start), 2 * 4e-3);
    } else {
      e.wait(slots.at(), 1, {});
      e.signal(slots.at(), 0, SignalOp::add, 1, {});
    }
  });
}

// A port sends and receives at once, but two transfers through one port take turns.
TEST(EmulatedLink, TransfersTakeTurnsAtAPort) {
  constexpr int64_t kBytes = 1 << 20;
  run_ranks(slow(3, 200e6, 0), [](Endpoint& e) {
    const auto data = e.allocate<std::byte>(2 * kBytes, "data");
    const auto slots = e.allocate<Signal>(1, "slots");
    std::vector<std::byte> src(kBytes);
    meet(e, slots, 1);
    const auto start = Clock::now();
    if (e.rank() == 0) {
      Transfer a = e.put_async(data.at(), 1, src.data(), {.row_bytes = kBytes}, {});
      Transfer b = e.put_async(data.at(), 2, src.data(), {.row_bytes = kBytes}, {});
      EXPECT_FALSE(a.immediate());
      b.wait();
      EXPECT_GE(seconds_since(start), 2 * kBytes / 200e6);
      a.wait();
    }
    meet(e, slots, 2);
  });
}

TEST(EmulatedLink, ASharedPortServesAllDevicesOfAMachine) {
  constexpr int64_t kBytes = 1 << 20;
  LocalFabricConfig config = slow(4, 200e6, 0);
  config.links.machines = 2;
  config.links.shared_port = true;
  run_ranks(config, [](Endpoint& e) {
    const auto data = e.allocate<std::byte>(kBytes, "data");
    const auto slots = e.allocate<Signal>(1, "slots");
    std::vector<std::byte> src(kBytes);
    const auto start = Clock::now();
    meet(e, slots, 1);
    if (e.rank() < 2) e.put(data.at(), e.rank() + 2, src.data(), kBytes, {});
    meet(e, slots, 2);  // both ranks of machine 0 are through
    EXPECT_GE(seconds_since(start), 2 * kBytes / 200e6);
  });
}

// The caller goes on while the bytes travel. A rank that is off its core for a whole transfer sees
// nothing of it, so one try of several has to.
TEST(EmulatedLink, TransfersOverlapWithTheCaller) {
  constexpr int64_t kBytes = 1 << 20;
  constexpr int kTries = 10;
  run_ranks(slow(2, 200e6, 0), [](Endpoint& e) {  // 5 ms
    const auto data = e.allocate<std::byte>(kBytes, "data");
    const auto slots = e.allocate<Signal>(1, "slots");
    std::vector<std::byte> src(kBytes);
    int overlapped = 0;
    for (int i = 1; i <= kTries; ++i) {
      const auto start = Clock::now();
      Transfer put = e.put_async(data.at(), 1 - e.rank(), src.data(), {.row_bytes = kBytes}, {});
      e.signal(slots.at(), 1 - e.rank(), SignalOp::add, 1, {});
      EXPECT_FALSE(put.immediate());
      const double issued = seconds_since(start);
      int64_t work = 0;
      while (e.peek(slots.at()) < static_cast<uint64_t>(i)) ++work;
      put.wait();
      EXPECT_GE(seconds_since(start), kBytes / 200e6);
      overlapped += issued < 0.5 * kBytes / 200e6 && work > 0;
    }
    EXPECT_GT(overlapped, 0);
  });
}

// A rank that waits for a slow link leaves its core to others.
TEST(EmulatedLink, WaitingDoesNotBurnTheCore) {
  constexpr int64_t kBytes = 10 << 20;
  run_ranks(slow(2, 50e6, 0), [](Endpoint& e) {  // 210 ms
    const auto data = e.allocate<std::byte>(kBytes, "data");
    std::vector<std::byte> src(kBytes);
    timespec before{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    const auto start = Clock::now();
    e.put(data.at(), 1 - e.rank(), src.data(), kBytes, {});
    const double wall = seconds_since(start);
    timespec after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double cpu = static_cast<double>(after.tv_sec - before.tv_sec) +
                       1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(cpu, 0.25 * wall);
  });
}

TEST(EmulatedLink, UnwindingCancelsTransfersFromMemoryThatGoes) {
  constexpr int64_t kBytes = 1 << 20;
  EXPECT_THROW(run_ranks(slow(2, 10e6, 0),
                         [](Endpoint& e) {  // 105 ms, the rank fails at once
                           const auto data = e.allocate<std::byte>(kBytes, "data");
                           const auto slots = e.allocate<Signal>(1, "slots");
                           std::vector<std::byte> src(kBytes);
                           std::vector<std::byte> dst(kBytes);
                           Transfer put = e.put_async(data.at(), 1 - e.rank(), src.data(),
                                                      {.row_bytes = kBytes}, {});
                           Transfer get = e.get_async(dst.data(), data.at(), 1 - e.rank(),
                                                      {.row_bytes = kBytes}, {});
                           if (e.rank() == 0) throw std::runtime_error("gone");
                           e.wait(slots.at(), 1, {});
                         }),
               std::runtime_error);
}

// Signals keep behind the puts of their pair under random delays, in a ring with credits.
TEST(EmulatedLink, JitterKeepsTheMemoryModel) {
  constexpr int kSeeds = 8;
  constexpr int kSteps = 200;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const LocalFabricConfig config{.ranks = 3, .links = {.jitter = Jitter{seed, 100e-6}}};
    std::atomic<int> wrong{0};
    run_ranks(config, [&](Endpoint& e) {
      const int next = (e.rank() + 1) % 3;
      const int previous = (e.rank() + 2) % 3;
      const auto data = e.allocate<int32_t>(64, "data");
      const auto slots = e.allocate<Signal>(2, "slots");  // data is there, data was read
      for (int step = 1; step <= kSteps; ++step) {
        const std::vector<int32_t> src(64, step * 10 + e.rank());
        e.wait(slots.at(1), step - 1, {});
        Transfer put = e.put_async(data.at(), next, src.data(), {.row_bytes = 256}, {});
        e.signal(slots.at(0), next, SignalOp::set, step, {});
        e.wait(slots.at(0), step, {});
        for (int32_t x : data.local()) wrong += x != step * 10 + previous;
        e.signal(slots.at(1), previous, SignalOp::set, step, {});
        put.wait();
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

// The same ring without the credit is wrong, and jitter shows it.
TEST(EmulatedLink, JitterExposesAMissingCredit) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "races on purpose";
#endif
  std::atomic<int> wrong{0};
  for (uint64_t seed = 1; seed <= 20 && wrong == 0; ++seed) {
    const LocalFabricConfig config{.ranks = 2, .links = {.jitter = Jitter{seed, 200e-6}}};
    run_ranks(config, [&](Endpoint& e) {
      const auto data = e.allocate<int32_t>(64, "data");
      const auto slots = e.allocate<Signal>(1, "slots");
      for (int step = 1; step <= 100; ++step) {
        const std::vector<int32_t> src(64, step);
        e.put(data.at(), 1 - e.rank(), src.data(), 256, {});
        e.signal(slots.at(), 1 - e.rank(), SignalOp::set, step, {});
        e.wait(slots.at(), step, {});
        std::this_thread::sleep_for(std::chrono::microseconds(e.rank() * 50));
        for (int32_t x : data.local()) wrong += x != step;
      }
    });
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace braid::fabric
