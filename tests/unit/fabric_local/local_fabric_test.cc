#include "braid/fabric/local/local_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "braid/fabric/local/run_ranks.h"

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

TEST(LocalFabric, MemoryIsSymmetricZeroedAndAligned) {
  run_ranks(3, [](Endpoint& e) {
    const auto buf = e.allocate<float>(5, "buf");
    EXPECT_EQ(buf.size(), 5);
    for (float x : buf.local()) EXPECT_EQ(x, 0.0f);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buf.peer(peer)) % 64, 0u);
    }
    EXPECT_EQ(buf.peer(e.rank()), buf.data());
    EXPECT_NO_THROW(e.allocate<float>(0, "empty"));
  });
}

TEST(LocalFabric, PutThenSignalMakesDataVisible) {
  run_ranks(2, [](Endpoint& e) {
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

TEST(LocalFabric, BlocksMoveMatrices) {
  run_ranks(2, [](Endpoint& e) {
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
    } else {
      e.wait(ready.at(), 1, {});
      std::vector<uint8_t> expected(40);
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 2; ++c) expected[12 + r * 10 + c] = 1 + r * 3 + c;
      }
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), data.data()));
      e.signal(ready.at(), 0, SignalOp::set, 1, {});
      e.wait(ready.at(), 1, {});
    }
  });
}

TEST(LocalFabric, SignalsAddUpAcrossRanks) {
  run_ranks(4, [](Endpoint& e) {
    const auto counter = e.allocate<Signal>(1, "counter");
    for (int i = 0; i < 1000; ++i) e.signal(counter.at(), 2, SignalOp::add, 2, {});
    if (e.rank() == 2) {
      e.wait(counter.at(), 8000, {});
      EXPECT_EQ(e.peek(counter.at()), 8000u);
    }
  });
}

TEST(LocalFabric, RefusesUnequalAllocations) {
  const Error size = error_of([] {
    run_ranks(2, [](Endpoint& e) {
      e.allocate<float>(8, "same");
      e.allocate<float>(e.rank() == 0 ? 8 : 9, "kv");
    });
  });
  EXPECT_EQ(size.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(size.what(), HasSubstr("symmetric allocation 1"));
  EXPECT_THAT(size.what(), HasSubstr("'kv' of 32"));
  EXPECT_THAT(size.what(), HasSubstr("'kv' of 36"));
  const Error name = error_of(
      [] { run_ranks(2, [](Endpoint& e) { e.allocate<float>(8, e.rank() == 0 ? "q" : "k"); }); });
  EXPECT_THAT(name.what(), HasSubstr("'q'"));
  EXPECT_THAT(name.what(), HasSubstr("'k'"));
}

TEST(LocalFabric, RefusesImpossibleSizes) {
  run_ranks(1, [](Endpoint& e) {
    EXPECT_EQ(error_of([&] { e.allocate<float>(-1, "negative"); }).code(),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { e.allocate<double>(int64_t{1} << 61, "overflow"); }).code(),
              ErrorCode::kInvalidArgument);
  });
  const Error huge = error_of(
      [] { run_ranks(2, [](Endpoint& e) { e.allocate<double>(int64_t{1} << 55, "huge"); }); });
  EXPECT_EQ(huge.code(), ErrorCode::kResource);
  EXPECT_THROW(LocalFabric({.ranks = 0}), Error);
  EXPECT_THROW(LocalFabric({.ranks = 1 << 20}), Error);
  EXPECT_THROW(LocalFabric({.ranks = 2, .deadline = Duration(0)}), Error);
}

TEST(LocalFabric, VerbsCheckRanksAndRanges) {
  run_ranks(2, [](Endpoint& e) {
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

TEST(LocalFabric, AnEmulatedPeerCannotBeMapped) {
  const LocalFabricConfig config{.ranks = 4,
                                 .links = {.machines = 2, .cluster_link = Link{10e9, 1e-6}}};
  run_ranks(config, [](Endpoint& e) {
    const auto buf = e.allocate<float>(4, "buf");
    const int neighbour = e.rank() ^ 1;
    const int far = e.rank() ^ 2;
    EXPECT_NE(buf.peer(neighbour), nullptr);
    const Error error = error_of([&] { buf.peer(far); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {} cannot map", e.rank())));
  });
}

TEST(LocalFabric, ADeadlineNamesRankTagExpectedAndSeen) {
  const Error error = error_of([] {
    run_ranks(2, [](Endpoint& e) {
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

TEST(LocalFabric, AFailedRankEndsAllWaitsWithItsError) {
  std::atomic<int> aborted{0};
  const Error error = error_of([&] {
    run_ranks(4, [&](Endpoint& e) {
      const auto slots = e.allocate<Signal>(1, "slots");
      if (e.rank() == 2) {
        std::this_thread::sleep_for(milliseconds(5));
        fail(ErrorCode::kMalformed, "weights of layer 3 are torn");
      }
      const Error mine = error_of([&] { e.wait(slots.at(), 1, {.tag = e.tag("layer 3")}); });
      EXPECT_EQ(mine.code(), ErrorCode::kAborted);
      EXPECT_THAT(mine.what(), HasSubstr(fmt::format("rank {}: wait for 'layer 3'", e.rank())));
      EXPECT_THAT(mine.what(), HasSubstr("rank 2 failed: weights of layer 3 are torn"));
      EXPECT_EQ(error_of([&] { e.check(); }).code(), ErrorCode::kAborted);
      ++aborted;
    });
  });
  EXPECT_EQ(aborted, 3);
  EXPECT_EQ(error.code(), ErrorCode::kMalformed);
  EXPECT_STREQ(error.what(), "weights of layer 3 are torn");
}

TEST(LocalFabric, AnyExceptionIsRethrownAsItIs) {
  EXPECT_THROW(run_ranks(2,
                         [](Endpoint& e) {
                           if (e.rank() == 1) throw std::out_of_range("x");
                         }),
               std::out_of_range);
  EXPECT_THROW(run_ranks(2,
                         [](Endpoint& e) {
                           const auto slots = e.allocate<Signal>(1, "slots");
                           if (e.rank() == 1) throw 42;
                           e.wait(slots.at(), 1, {});
                         }),
               int);
}

TEST(LocalFabric, OneRanksThreadsShareItsEndpoint) {
  run_ranks(2, [](Endpoint& e) {
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

TEST(LocalFabric, SaysWhatItIs) {
  EXPECT_EQ(LocalFabric({.ranks = 2}).describe(), "local fabric, 2 ranks, 1 machine x 2 devices");
}

TEST(LocalFabric, GivesUpTheCoreSoonerWhereCoresAreShort) {
  const cpu::WaitPolicy dedicated = default_wait(2, 2, false);
  const cpu::WaitPolicy shared = default_wait(3, 2, false);
  const cpu::WaitPolicy emulated = default_wait(2, 2, true);
  EXPECT_GT(dedicated.spin, shared.spin);
  EXPECT_GT(dedicated.yields, shared.yields);
  EXPECT_EQ(emulated.yields, 0);
}

}  // namespace
}  // namespace braid::fabric
