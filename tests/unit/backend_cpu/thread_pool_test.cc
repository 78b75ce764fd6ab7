#include "braid/backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "braid/base/error.h"

namespace braid::cpu {
namespace {

using namespace std::chrono_literals;

TEST(ThreadPool, EveryThreadRunsOncePerRun) {
  for (int threads : {1, 2, 3, 5, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> calls(threads, 0);  // each thread writes its own element
    const std::thread::id caller = std::this_thread::get_id();
    for (int run = 1; run <= 200; ++run) {
      pool.run([&](const Team& team) {
        ASSERT_EQ(team.count, threads);
        ++calls[team.index];
        EXPECT_EQ(team.index == 0, std::this_thread::get_id() == caller);
      });
      for (int i = 0; i < threads; ++i) ASSERT_EQ(calls[i], run) << threads << " threads, " << i;
    }
  }
}

// Each phase reads what a neighbour wrote in the phase before, so a barrier that lets one thread
// through early, or does not order memory, gives a wrong sum.
TEST(ThreadPool, BarrierOrdersPhases) {
  for (int threads : {2, 3, 4, 7}) {
    ThreadPool pool(threads);
    constexpr int kPhases = 2000;
    std::vector<int64_t> cells[2];
    cells[0].assign(threads, 1);
    cells[1].assign(threads, -1);
    pool.run([&](const Team& team) {
      for (int phase = 0; phase < kPhases; ++phase) {
        const auto& from = cells[phase % 2];
        auto& to = cells[1 - phase % 2];
        to[team.index] = from[(team.index + 1) % team.count] + 1;
        team.barrier();
      }
    });
    for (int i = 0; i < threads; ++i) EXPECT_EQ(cells[0][i], 1 + kPhases) << threads;
  }
}

TEST(ThreadPool, ExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> aborted{0};
    try {
      pool.run([&](const Team& team) {
        if (team.index == thrower) throw std::runtime_error("thread " + std::to_string(thrower));
        try {
          team.barrier();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kAborted);
          ++aborted;
          throw;
        }
      });
      FAIL() << "run returned";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "thread " + std::to_string(thrower));
    }
    EXPECT_EQ(aborted, 3);

    std::atomic<int> done{0};
    pool.run([&](const Team& team) {
      for (int i = 0; i < 10; ++i) team.barrier();
      ++done;
    });
    EXPECT_EQ(done, 4);
  }
}

TEST(ThreadPool, ExceptionOnOneThread) {
  ThreadPool pool(1);
  EXPECT_THROW(pool.run([](const Team&) { throw std::runtime_error("x"); }), std::runtime_error);
  pool.run([](const Team& team) { team.barrier(); });
}

TEST(ThreadPool, SleepingWorkersWake) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(5ms);
    pool.run([&](const Team& team) {
      if (team.index == 1) std::this_thread::sleep_for(2ms);  // the others sleep in the barrier
      team.barrier();
      ++calls;
    });
  }
  EXPECT_EQ(calls, 15);
}

// Several pools with more threads than any test machine has cores, with random pauses.
TEST(ThreadPool, OversubscribedPoolsMakeProgress) {
  constexpr int kPools = 4;
  const int threads = usable_cores() + 1;
  constexpr int kRuns = 20;
  constexpr int kBarriers = 20;
  std::vector<std::thread> ranks;
  std::atomic<int64_t> passed{0};
  for (int rank = 0; rank < kPools; ++rank) {
    ranks.emplace_back([&, rank] {
      ThreadPool pool(threads, kPools * threads);
      std::mt19937 random(rank);
      for (int run = 0; run < kRuns; ++run) {
        if (random() % 4 == 0) std::this_thread::sleep_for(100us);
        pool.run([&](const Team& team) {
          for (int i = 0; i < kBarriers; ++i) team.barrier();
          passed += kBarriers;
        });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(passed, int64_t{kPools} * threads * kRuns * kBarriers);
}

TEST(ThreadPool, RefusesNonsense) {
  for (int threads : {0, -1, 1025}) {
    try {
      ThreadPool pool(threads);
      FAIL() << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(std::to_string(threads)), std::string::npos);
    }
  }
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([&](const Team& team) {
    if (team.index == 0) pool.run([](const Team&) {});
  }),
               std::logic_error);
}

TEST(Barrier, MissingThreadHitsTheDeadline) {
  Barrier barrier(2, WaitPolicy{1us, 2}, 20ms);
  try {
    barrier.wait();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline);
    EXPECT_NE(std::string(error.what()).find("1 of 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(barrier.wait(), Error);  // stays aborted
  barrier.reset();
  std::thread other([&] { barrier.wait(); });
  barrier.wait();
  other.join();
}

TEST(WakeCounter, SleeperSeesTheAdvance) {
  WakeCounter counter;
  EXPECT_FALSE(counter.wait_past(counter.load(), WaitPolicy{}, 1ms));
  int payload = 0;
  for (int i = 0; i < 200; ++i) {
    const uint32_t seen = counter.load();
    std::thread other([&] {
      payload = i;
      counter.advance();
    });
    EXPECT_TRUE(counter.wait_past(seen, WaitPolicy{}, 60s));
    EXPECT_EQ(payload, i);
    other.join();
  }
}

}  // namespace
}  // namespace braid::cpu
