#include <gmock/gmock.h>

#include <numeric>

#include "dist/await_all.h"
#include "dist/fabric_testing.h"
#include "dist/worlds.h"

// What the verbs of every fabric do, between threads and between processes.
namespace braid::fabric {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Error error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInvalidArgument, "no error");
}

struct Division {
  const char* name;
  int ranks_each;  // of a process; 0: threads
  bool messages = false;
};

class Verbs : public testing::TestWithParam<Division> {
 protected:
  void SetUp() override {
    if (!World{GetParam().ranks_each}.here()) GTEST_SKIP() << "this build has no UCX";
  }
  void run(const LocalFabricConfig& config, const std::function<void(Endpoint&)>& fn) {
    const auto [name, each, messages] = GetParam();
    run_world({each == 0 ? 0 : config.ranks / each, messages}, config, fn);
  }
};

TEST_P(Verbs, PutThenSignalMakesDataVisible) {
  run({.ranks = 2}, [](Endpoint& e) {
    const auto data = e.allocate<int32_t>(100, "data");
    const auto ready = e.allocate<Signal>(2, "ready");
    const Tag tag = e.tag("test");
    if (e.rank() == 0) {
      std::vector<int32_t> values(50);
      std::iota(values.begin(), values.end(), 7);
      e.put(data.at(50), 1, values.data(), 200, tag);
      e.signal(ready.at(1), 1, SignalOp::set, 3, tag);
      e.wait(ready.at(0), 1, {.tag = tag});  // rank 1 is done with its check
    } else {
      e.wait(ready.at(1), 3, {.tag = tag, .from = 0});
      EXPECT_EQ(e.peek(ready.at(1)), 3u);
      EXPECT_EQ(data.local()[49], 0);
      EXPECT_EQ(data.local()[50], 7);
      EXPECT_EQ(data.local()[99], 56);
      int32_t mine = 0;
      e.get(&mine, data.at(50), 1, 4, tag);  // one's own part, through the verb
      EXPECT_EQ(mine, 7);
      e.signal(ready.at(0), 0, SignalOp::add, 1, tag);
    }
  });
}

// A put may wait for its signal to be sent along: another put, a wait for the put, and a wait for
// anything else send the put alone, and a signal comes after all.
TEST_P(Verbs, PutsWithoutSignalsOfTheirOwnArriveBeforeALaterSignal) {
  run({.ranks = 2}, [](Endpoint& e) {
    constexpr int kPuts = 6, kRounds = 50;
    const auto data = e.allocate<int32_t>(kPuts, "data");
    const auto ready = e.allocate<Signal>(2, "ready");
    const Tag tag = e.tag("test");
    const std::array<int32_t, kPuts> values = {11, 12, 13, 14, 15, 16};
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (e.rank() == 0) {
        const auto put = [&](int i) {
          return e.put_async(data.at(i), 1, &values.at(static_cast<size_t>(i)),
                             {.row_bytes = sizeof(int32_t)}, tag);
        };
        const Transfer first = put(0), second = put(1);
        put(2).wait();
        { const Transfer dropped = put(3); }
        int32_t mine = 0;
        e.get(&mine, data.at(0), 0, sizeof(mine), tag);
        const Transfer last = put(4);
        e.signal(ready.at(0), 1, SignalOp::set, 2 * round - 1, tag);
        e.signal(ready.at(0), 1, SignalOp::add, 1, tag);
        const Transfer next = put(5);  // sent by the wait, without a signal
        e.wait(ready.at(1), round, {.tag = tag, .from = 1});
      } else {
        e.wait(ready.at(0), 2 * round, {.tag = tag, .from = 0});
        for (size_t i = 0; i < 5; ++i) ASSERT_EQ(data.local()[i], values.at(i)) << round;
        std::ranges::fill(data.local().first(5), 0);
        e.signal(ready.at(1), 0, SignalOp::set, round, tag);
      }
    }
    if (e.rank() == 0) {
      e.signal(ready.at(0), 1, SignalOp::add, 1, tag);
    } else {
      e.wait(ready.at(0), 2 * kRounds + 1, {.tag = tag, .from = 0});
      EXPECT_EQ(data.local()[5], values[5]);
    }
  });
}

TEST_P(Verbs, BlocksMoveMatrices) {
  run({.ranks = 2}, [](Endpoint& e) {
    const auto data = e.allocate<uint8_t>(40, "matrix");  // [4, 10]
    const auto ready = e.allocate<Signal>(1, "ready");
    if (e.rank() == 0) {
      const uint8_t src[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};  // [3, 3]
      e.put_async(data.at(12), 1, src,
                  {.row_bytes = 2, .rows = 3, .dst_stride = 10, .src_stride = 3}, {})
          .wait();
      e.signal(ready.at(), 1, SignalOp::set, 1, {});
      e.wait(ready.at(), 1, {});
      uint8_t back[6] = {};  // [3, 2]
      e.get_async(back, data.at(12), 1,
                  {.row_bytes = 2, .rows = 3, .dst_stride = 2, .src_stride = 10}, {})
          .wait();
      EXPECT_THAT(back, testing::ElementsAre(1, 2, 4, 5, 7, 8));
      e.signal(ready.at(), 1, SignalOp::set, 2, {});
    } else {
      e.wait(ready.at(), 1, {});
      std::vector<uint8_t> expected(40);
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 2; ++c) expected[12 + r * 10 + c] = 1 + r * 3 + c;
      }
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), data.data()));
      e.signal(ready.at(), 0, SignalOp::set, 1, {});
      e.wait(ready.at(), 2, {});  // then its memory may go
    }
  });
}

TEST_P(Verbs, SignalsAddUpAcrossRanks) {
  run({.ranks = 4}, [](Endpoint& e) {
    const auto counter = e.allocate<Signal>(1, "counter");
    for (int i = 0; i < 1000; ++i) e.signal(counter.at(), 2, SignalOp::add, 2, {});
    if (e.rank() == 2) {
      e.wait(counter.at(), 8000, {});
      EXPECT_EQ(e.peek(counter.at()), 8000u);
    }
  });
}

TEST_P(Verbs, RefusesUnequalAllocations) {
  const Error size = error_of([&] {
    run({.ranks = 2}, [](Endpoint& e) {
      e.allocate<float>(8, "same");
      e.allocate<float>(e.rank() == 0 ? 8 : 9, "kv");
    });
  });
  EXPECT_EQ(size.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(size.what(), HasSubstr("symmetric allocation 1"));
  EXPECT_THAT(size.what(), HasSubstr("'kv' of 32"));
  EXPECT_THAT(size.what(), HasSubstr("'kv' of 36"));
  const Error name = error_of([&] {
    run({.ranks = 2}, [](Endpoint& e) { e.allocate<float>(8, e.rank() == 0 ? "q" : "k"); });
  });
  EXPECT_THAT(name.what(), HasSubstr("'q'"));
  EXPECT_THAT(name.what(), HasSubstr("'k'"));
}

TEST_P(Verbs, VerbsCheckRanksAndRanges) {
  run({.ranks = 2}, [](Endpoint& e) {
    const auto buf = e.allocate<std::byte>(100, "buf");
    const auto slots = e.allocate<Signal>(2, "slots");
    std::byte bytes[101];
    EXPECT_THROW(e.put(buf.at(0), 2, bytes, 1, {}), std::logic_error);
    EXPECT_THROW(e.put(buf.at(0), 1, bytes, 101, {}), std::logic_error);
    EXPECT_THROW(e.put(buf.at(100), 1, bytes, 1, {}), std::logic_error);
    EXPECT_THROW(e.get(bytes, buf.at(-1), 1, 1, {}), std::logic_error);
    EXPECT_THROW(e.signal(slots.at(2), 1, SignalOp::set, 1, {}), std::logic_error);
    EXPECT_THROW(e.wait(slots.at(2), 1, {}), std::logic_error);
    EXPECT_THROW(e.put({}, 1, bytes, 1, {}), std::logic_error);
  });
}

TEST_P(Verbs, ADeadlineNamesRankTagExpectedAndSeen) {
  const Error error = error_of([&] {
    run({.ranks = 2}, [](Endpoint& e) {
      const auto slots = e.allocate<Signal>(4, "kv/ready");
      if (e.rank() == 0) {
        e.signal(slots.at(3), 1, SignalOp::set, 4, {});
        return;
      }
      e.wait(slots.at(3), 4, {});
      e.wait(slots.at(3), 5, {.tag = e.tag("pull KV"), .from = 0, .deadline = milliseconds(20)});
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kDeadline);
  EXPECT_STREQ(error.what(),
               "rank 1: waited 0.02 s for 'pull KV', signal 3 of 'kv/ready' from rank 0: "
               "expected 5, seen 4");
}

TEST_P(Verbs, AFailedRankEndsAllWaitsWithItsError) {
  const Shared<std::atomic<int>> here, aborted;
  const Error error = error_of([&] {
    run({.ranks = 4}, [&](Endpoint& e) {
      const auto slots = e.allocate<Signal>(1, "slots");
      ++*here;
      if (e.rank() == 2) {
        await_all(e, *here);
        std::this_thread::sleep_for(milliseconds(5));
        fail(ErrorCode::kMalformed, "weights of layer 3 are torn");
      }
      const Error mine = error_of([&] { e.wait(slots.at(), 1, {.tag = e.tag("layer 3")}); });
      EXPECT_EQ(mine.code(), ErrorCode::kAborted);
      EXPECT_THAT(mine.what(), HasSubstr(fmt::format("rank {}: wait for 'layer 3'", e.rank())));
      EXPECT_THAT(mine.what(), HasSubstr("rank 2 failed: weights of layer 3 are torn"));
      EXPECT_EQ(error_of([&] { e.check(); }).code(), ErrorCode::kAborted);
      ++*aborted;
    });
  });
  EXPECT_EQ(aborted->load(), 3);
  EXPECT_EQ(error.code(), ErrorCode::kMalformed);
  EXPECT_STREQ(error.what(), "weights of layer 3 are torn");
}

TEST_P(Verbs, OneRanksThreadsShareItsEndpoint) {
  run({.ranks = 2}, [](Endpoint& e) {
    constexpr int kThreads = 3;
    const auto slots = e.allocate<Signal>(kThreads, "slots");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 1; i <= 200; ++i) {
          e.signal(slots.at(t), 1 - e.rank(), SignalOp::set, i, {});
          e.wait(slots.at(t), i, {});
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(e.traffic().bytes(Verb::signal, LinkClass::machine), 8 * 200 * kThreads);
  });
}

// Blocks of all sizes with gaps at either end, from small ones to such that a fabric fetches from
// the sender's memory; after the signal every byte is there, and gaps are as they were.
TEST_P(Verbs, BlocksOfAllSizesArriveBeforeTheirSignal) {
  run({.ranks = 4, .deadline = std::chrono::seconds(60)}, [](Endpoint& e) {
    constexpr int64_t kBytes = 3 << 20;
    const auto data = e.allocate<std::byte>(kBytes, "data");
    const auto signals = e.allocate<Signal>(8, "signals");
    const Tag tag = e.tag("blocks");
    const int to = (e.rank() + 1) % 4, from = (e.rank() + 3) % 4;
    std::vector<std::byte> src(kBytes), back(kBytes);
    for (uint64_t round = 1; round <= 60; ++round) {
      // The same draws at the sender and at the receiver.
      const auto block_of = [&](int sender) {
        const uint64_t draw = mix(round * 8 + sender);
        Block block{.row_bytes = 1 + static_cast<int64_t>(draw % (uint64_t{1} << (draw / 64 % 20))),
                    .rows = 1 + static_cast<int64_t>(draw / 3 % 40)};
        block.rows = std::min(block.rows, kBytes / (2 * block.row_bytes));
        block.dst_stride = block.row_bytes + static_cast<int64_t>(draw / 5 % 2 * 7);
        block.src_stride = block.row_bytes + static_cast<int64_t>(draw / 7 % 2 * 13);
        if (block.rows * (block.row_bytes + 13) > kBytes) block.rows = 1;
        return block;
      };
      std::ranges::fill(data.local(), std::byte{0xee});
      e.signal(signals.at(0), from, SignalOp::set, round, tag);  // from may put
      e.wait(signals.at(0), round, {.tag = tag, .from = to});
      const Block out = block_of(e.rank());
      for (int64_t i = 0; i < kBytes; ++i) src[i] = byte_of(round, e.rank(), i);
      Transfer transfer = e.put_async(data.at(), to, src.data(), out, tag);
      e.signal(signals.at(1), to, SignalOp::set, round, tag);
      e.wait(signals.at(1), round, {.tag = tag, .from = from});
      const Block in = block_of(from);
      for (int64_t r = 0; r < in.rows; ++r) {
        for (int64_t i = 0; i < in.dst_stride && r * in.dst_stride + i < kBytes; ++i) {
          const bool gap = i >= in.row_bytes;
          ASSERT_EQ(data.local()[r * in.dst_stride + i],
                    gap ? std::byte{0xee} : byte_of(round, from, r * in.src_stride + i))
              << "round " << round << ", row " << r << " of " << in.rows << ", byte " << i << " of "
              << in.row_bytes;
        }
      }
      transfer.wait();
      e.signal(signals.at(3), from, SignalOp::set, round, tag);  // from's data are here
      e.wait(signals.at(3), round, {.tag = tag, .from = to});
      // And back: what this rank has put, as the peer has it.
      std::ranges::fill(back, std::byte{0xdd});
      e.get_async(back.data(), data.at(), to,
                  {.row_bytes = out.row_bytes,
                   .rows = out.rows,
                   .dst_stride = out.src_stride,
                   .src_stride = out.dst_stride},
                  tag)
          .wait();
      for (int64_t i = 0; i < (out.rows - 1) * out.src_stride + out.row_bytes; ++i) {
        const bool gap = i % out.src_stride >= out.row_bytes;
        ASSERT_EQ(back[i], gap ? std::byte{0xdd} : src[i]) << "round " << round << ", byte " << i;
      }
      e.signal(signals.at(2), to, SignalOp::set, round, tag);  // its data were read
      e.wait(signals.at(2), round, {.tag = tag, .from = from});
    }
  });
}

TEST_P(Verbs, WhatComesBeforeItsMemoryWaitsForIt) {
  run({.ranks = 4, .deadline = std::chrono::seconds(60)}, [](Endpoint& e) {
    const int to = (e.rank() + 1) % 4;
    for (int round = 0; round < 20; ++round) {
      if (e.rank() == round % 4) std::this_thread::sleep_for(milliseconds(2));
      const auto data = e.allocate<int>(200000, fmt::format("data {}", round));
      const auto ready = e.allocate<Signal>(2, fmt::format("ready {}", round));
      const std::vector<int> values(200000, 1000 * round + e.rank());
      Transfer transfer = e.put_async(data.at(), to, values.data(), {.row_bytes = 800000}, {});
      e.signal(ready.at(0), to, SignalOp::add, 1, {});
      int first = 0;
      e.get(&first, data.at(0), to, 4, {});
      EXPECT_TRUE(first == 0 || first == 1000 * round + e.rank());
      e.wait(ready.at(0), 1, {});
      EXPECT_EQ(data.local()[199999], 1000 * round + (e.rank() + 3) % 4);
      transfer.wait();
      e.signal(ready.at(1), to, SignalOp::set, 1, {});
      e.wait(ready.at(1), 1, {});  // nobody reads or writes this rank's memory now
    }
  });
}

// A rank that computes and calls nothing is read and written all the same.
TEST_P(Verbs, ABusyRankAnswers) {
  run({.ranks = 2, .deadline = std::chrono::seconds(30)}, [](Endpoint& e) {
    const auto data = e.allocate<int>(1 << 18, "data");
    const auto ready = e.allocate<Signal>(2, "ready");
    if (e.rank() == 0) {
      std::ranges::fill(data.local(), 7);
      e.signal(ready.at(0), 1, SignalOp::set, 1, {});
      while (e.peek(ready.at(1)) == 0) {  // no wait makes progress meanwhile
      }
      EXPECT_EQ(data.local()[5], 9);
    } else {
      e.wait(ready.at(0), 1, {});
      std::vector<int> got(1 << 18);
      e.get(got.data(), data.at(), 0, 4 << 18, {});
      EXPECT_EQ(got[(1 << 18) - 1], 7);
      got.assign(1 << 18, 9);
      e.put(data.at(), 0, got.data(), 4 << 18, {});
      e.signal(ready.at(1), 0, SignalOp::set, 1, {});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Verbs,
                         testing::Values(Division{"Threads", 0}, Division{"AProcessEach", 1},
                                         Division{"ByTcp", 1, true}, Division{"TwoInAProcess", 2},
                                         Division{"TwoInAProcessByTcp", 2, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace braid::fabric
