#include <numeric>
#include <thread>

#include "backend/cuda/comm/comm_testing.h"
#include "braid/fabric/collectives/barrier.h"

namespace braid::fabric {
namespace {

using cuda::check_cuda;
using cuda::test::device_count;
using cuda::test::error_of;
using cuda::test::job_processes;
using cuda::test::World;
using cuda::test::WorldKind;
using std::chrono::milliseconds;
using testing::HasSubstr;

#define REQUIRE_DEVICE() \
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device"

// GPUs of their own where there are enough, else one for all.
PeerFabricConfig world(int ranks) {
  return cuda::test::fabric_config({ranks, device_count() < ranks});
}

template <class T>
std::vector<T> download(const T* from, int64_t n) {
  std::vector<T> out(n);
  check_cuda(cudaMemcpy(out.data(), from, n * sizeof(T), cudaMemcpyDefault), "download");
  return out;
}

// Two ranks, of this process or of a job of two.
World world_of(int ranks) {
  return World(WorldKind{ranks, device_count() < ranks && job_processes() != ranks});
}

World world_over(const LinkModel& link) {
  if (job_processes() == 2) return world_of(2);
  PeerFabricConfig config = world(2);
  config.links = link;
  return World(config);
}

TEST(PeerFabric, RefusesInOneLine) {
  const int devices = device_count();
  if (devices == 0) {
    const Error none = error_of([] { PeerFabric({.ranks = 1}); });
    EXPECT_EQ(none.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(none.what(), HasSubstr("peer fabric: no GPU"));
    return;
  }
  const Error few = error_of([&] { PeerFabric({.ranks = devices + 1}); });
  if (devices < PeerFabric::kMaxRanks) {
    EXPECT_EQ(few.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(few.what(),
                HasSubstr(fmt::format("rank {} is to run on cuda:{}", devices, devices)));
  }
  EXPECT_THAT(error_of([] { PeerFabric({.ranks = 0}); }).what(), HasSubstr("must be 1 to 8"));
  EXPECT_THAT(error_of([] {
                PeerFabric({.ranks = 2, .devices = {0, 0}});
              }).what(),
              HasSubstr("cuda:0 is given to several ranks"));
  EXPECT_THAT(error_of([] {
                PeerFabric({.ranks = 1, .links = {.machine_link = Link{1e9, 0}}});
              }).what(),
              HasSubstr("emulates the link between machines only"));
  const Error memory = error_of([] {
    PeerFabric fabric({.ranks = 1});
    fabric.endpoint(0).allocate<double>(int64_t{1} << 45, "huge");
  });
  EXPECT_EQ(memory.code(), ErrorCode::kResource);
  EXPECT_THAT(memory.what(), HasSubstr("'huge': no memory for 281474976710656 bytes on cuda:0"));
  EXPECT_THAT(memory.what(), HasSubstr("are free"));
}

TEST(PeerFabric, MemoryIsSymmetricZeroedAndFound) {
  REQUIRE_DEVICE();
  World world = world_of(2);
  world.run([](DeviceEndpoint& e) {
    const auto buf = e.allocate<float>(1000, "buf");
    EXPECT_EQ(download(buf.data(), 1000), std::vector<float>(1000, 0.f));
    EXPECT_EQ(buf.peer(e.rank()), buf.data());
    EXPECT_NE(buf.peer(1 - e.rank()), buf.data());
    const auto place = e.place(buf.data() + 7);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->offset, 28);
    int host = 0;
    EXPECT_FALSE(e.place(&host).has_value());
    EXPECT_FALSE(e.place(buf.peer(1 - e.rank())).has_value());
  });
  EXPECT_THAT(world.describe(), HasSubstr(job_processes() > 0 ? "2 ranks with a process and a GPU"
                                                              : "peer fabric, 2 ranks on cuda:0"));
}

// Every link that a put may take. Only a single process emulates any.
std::vector<LinkModel> links() {
  if (job_processes() > 0) return {LinkModel{}};
  return {LinkModel{}, LinkModel{.machines = 2},
          LinkModel{.machines = 2, .cluster_link = Link{5e9, 20e-6}}};
}

TEST(PeerFabric, PutThenSignalMakesDataVisible) {
  REQUIRE_DEVICE();
  for (const LinkModel& link : links()) {
    World world = world_over(link);
    world.run([](DeviceEndpoint& e) {
      for (int64_t n : {1, 1000, 3 << 20}) {
        const auto data = e.allocate<int32_t>(n, "data");
        const auto ready = e.allocate<Signal>(2, "ready");
        const Tag tag = e.tag("test");
        std::vector<int32_t> values(n);
        std::iota(values.begin(), values.end(), 7 + 1000 * e.rank());
        const int peer = 1 - e.rank();
        e.put(data.at(), peer, values.data(), n * 4, tag);
        e.signal(ready.at(e.rank()), peer, SignalOp::set, 3, tag);
        e.wait(ready.at(peer), 3, {.tag = tag, .from = peer});
        std::iota(values.begin(), values.end(), 7 + 1000 * peer);
        EXPECT_EQ(download(data.data(), n), values) << n;
        std::vector<int32_t> back(n);
        e.get(back.data(), data.at(), peer, n * 4, tag);
        std::iota(values.begin(), values.end(), 7 + 1000 * e.rank());
        EXPECT_EQ(back, values) << n;
        e.signal(ready.at(e.rank()), peer, SignalOp::add, 1, tag);
        e.wait(ready.at(peer), 4, {.tag = tag, .from = peer});
      }
    });
  }
}

TEST(PeerFabric, BlocksMoveMatrices) {
  REQUIRE_DEVICE();
  for (const LinkModel& link : links()) {
    World world = world_over(link);
    world.run([](DeviceEndpoint& e) {
      constexpr int64_t kRows = 600, kPitch = 5000, kWidth = 3001;
      const auto data = e.allocate<uint8_t>(kRows * kPitch, "matrix");
      const auto ready = e.allocate<Signal>(1, "ready");
      if (e.rank() == 0) {
        std::vector<uint8_t> src(kRows * kWidth);
        for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i * 7 + i / 251);
        e.put_async(
             data.at(11), 1, src.data(),
             {.row_bytes = kWidth, .rows = kRows, .dst_stride = kPitch, .src_stride = kWidth}, {})
            .wait();
        e.signal(ready.at(), 1, SignalOp::set, 1, {});
        e.wait(ready.at(), 1, {});
        std::vector<uint8_t> back(kRows * kWidth);
        e.get_async(
             back.data(), data.at(11), 1,
             {.row_bytes = kWidth, .rows = kRows, .dst_stride = kWidth, .src_stride = kPitch}, {})
            .wait();
        EXPECT_TRUE(back == src);
        e.signal(ready.at(), 1, SignalOp::set, 2, {});
      } else {
        e.wait(ready.at(), 1, {});
        const auto mine = download(data.data(), kRows * kPitch);
        int64_t wrong = 0;
        for (int64_t i = 0; i < kRows * kPitch; ++i) {
          const int64_t r = (i - 11) / kPitch, c = (i - 11) % kPitch;
          const int64_t k = r * kWidth + c;
          const bool inside = i >= 11 && c < kWidth && r < kRows;
          wrong += mine[i] != (inside ? static_cast<uint8_t>(k * 7 + k / 251) : 0);
        }
        EXPECT_EQ(wrong, 0);
        e.signal(ready.at(), 0, SignalOp::set, 1, {});
        e.wait(ready.at(), 2, {});
      }
    });
  }
}

TEST(PeerFabric, ManyPutsAndSignalsArriveInOrder) {
  REQUIRE_DEVICE();
  for (const LinkModel& link : links()) {
    World world = world_over(link);
    world.run([](DeviceEndpoint& e) {
      constexpr int kSteps = 100;
      constexpr int64_t n = 5000;
      const auto data = e.allocate<int32_t>(n * kSteps, "data");
      const auto ready = e.allocate<Signal>(1, "ready");
      const auto src = e.allocate<int32_t>(n * kSteps, "src");
      std::vector<int32_t> values(n * kSteps);
      for (int64_t i = 0; i < n * kSteps; ++i) values[i] = static_cast<int32_t>(i * 3 + e.rank());
      check_cuda(cudaMemcpy(src.data(), values.data(), values.size() * 4, cudaMemcpyDefault), "");
      std::vector<Transfer> pending;
      const int peer = 1 - e.rank();
      for (int s = 0; s < kSteps; ++s) {
        pending.push_back(
            e.put_async(data.at(s * n), peer, src.data() + s * n, {.row_bytes = n * 4}, {}));
        e.signal(ready.at(), peer, s % 2 ? SignalOp::add : SignalOp::set, s % 2 ? 1 : s + 1, {});
      }
      e.wait(ready.at(), kSteps, {.from = peer});
      for (auto& v : values) v += peer - e.rank();
      EXPECT_TRUE(download(data.data(), n * kSteps) == values);
      for (Transfer& t : pending) t.wait();
      Comm comm(e, Group::world(2));
      for (int i = 0; i < 20; ++i) barrier(comm);
      const LinkClass machine = e.link(0, 1);
      EXPECT_EQ(e.traffic().bytes(Verb::put, machine), n * kSteps * 4);
      EXPECT_EQ(e.traffic().bytes(Verb::put, LinkClass::device), 0);
    });
  }
}

TEST(PeerFabric, AnEmulatedLinkKeepsItsPaceAndMapsNothing) {
  REQUIRE_DEVICE();
  PeerFabricConfig config = world(2);
  config.links = {.machines = 2, .cluster_link = Link{1e9, 1e-3}};
  PeerFabric fabric(config);
  run_ranks(fabric, [](PeerEndpoint& e) {
    constexpr int64_t n = 50 << 20;  // 52 ms at that speed
    const auto data = e.allocate<std::byte>(n, "data");
    const auto src = e.allocate<std::byte>(n, "src");
    const auto ready = e.allocate<Signal>(1, "ready");
    const Error error = error_of([&] { data.peer(1 - e.rank()); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    const auto start = std::chrono::steady_clock::now();
    e.put(data.at(), 1 - e.rank(), src.data(), n, {});
    e.signal(ready.at(), 1 - e.rank(), SignalOp::set, 1, {});
    e.wait(ready.at(), 1, {.from = 1 - e.rank()});
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_GE(took, milliseconds(50));
    EXPECT_EQ(e.traffic().bytes(Verb::put, LinkClass::cluster), n);
  });
}

TEST(PeerFabric, ADeadlineNamesRankTagExpectedAndSeen) {
  REQUIRE_DEVICE();
  const Error error = error_of([] {
    PeerFabric fabric(world(2));
    run_ranks(fabric, [](PeerEndpoint& e) {
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

TEST(PeerFabric, AFailedRankEndsAllWaitsWithItsError) {
  REQUIRE_DEVICE();
  std::atomic<int> aborted{0};
  const Error error = error_of([&] {
    PeerFabric fabric(world(3));
    run_ranks(fabric, [&](PeerEndpoint& e) {
      const auto slots = e.allocate<Signal>(1, "slots");
      if (e.rank() == 2) {
        std::this_thread::sleep_for(milliseconds(5));
        fail(ErrorCode::kMalformed, "weights of layer 3 are torn");
      }
      const Error mine = error_of([&] { e.wait(slots.at(), 1, {.tag = e.tag("layer 3")}); });
      EXPECT_EQ(mine.code(), ErrorCode::kAborted);
      EXPECT_THAT(mine.what(), HasSubstr("rank 2 failed: weights of layer 3 are torn"));
      ++aborted;
    });
  });
  EXPECT_EQ(aborted, 2);
  EXPECT_EQ(error.code(), ErrorCode::kMalformed);
}

TEST(PeerFabric, VerbsCheckRanksAndRanges) {
  REQUIRE_DEVICE();
  World world = world_of(2);
  world.run([](DeviceEndpoint& e) {
    const auto buf = e.allocate<std::byte>(100, "buf");
    const auto slots = e.allocate<Signal>(2, "slots");
    std::byte bytes[101];
    EXPECT_THROW(e.put(buf.at(0), 2, bytes, 1, {}), std::logic_error);
    EXPECT_THROW(e.put(buf.at(0), 1, bytes, 101, {}), std::logic_error);
    EXPECT_THROW(e.get(bytes, buf.at(-1), 1, 1, {}), std::logic_error);
    EXPECT_THROW(e.signal(slots.at(2), 1, SignalOp::set, 1, {}), std::logic_error);
    EXPECT_THROW(e.signal(buf.at(0).as<Signal>(), 1, SignalOp::set, 1, {}), std::logic_error);
    EXPECT_THROW(e.wait(slots.at(2), 1, {}), std::logic_error);
  });
}

}  // namespace
}  // namespace braid::fabric
