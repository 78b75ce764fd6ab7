#include <cstdlib>
#include <random>
#include <thread>

#include "backend/cuda/comm/comm_testing.h"
#include "backend/cuda/comm/graph_kernels.h"

namespace braid::cuda::test {
namespace {

constexpr int kCollectives = 64;
constexpr int64_t kRows = 8 * 5;
constexpr int64_t kCols = 3000;

// Replays on this machine: BRAID_REPLAYS, or 10,000 on GPUs of their own.
int replays(bool shared) {
  if (const char* text = std::getenv("BRAID_REPLAYS")) return std::atoi(text);
  return shared ? 500 : 10000;
}

CollectiveConfig draw_config(std::mt19937& random, CollectiveOp op) {
  const bool moves = op == CollectiveOp::all_gather || op == CollectiveOp::all_to_all;
  CollectiveConfig c;
  c.ctas = 1 << random() % 5;
  c.threads = 64 << random() % 4;
  switch (random() % (moves ? 5 : 4)) {
    case 0:
      c.line_data = 8;
      break;
    case 1:
      c.line_data = 12;
      break;
    case 2:
      c.algorithm = CommAlgorithm::direct;
      break;
    case 3:
      c.algorithm = CommAlgorithm::direct;
      c.unroll = 8;
      break;
    default:
      c.algorithm = CommAlgorithm::copy_engine;
  }
  return c;
}

// Random collectives one after the other into one y, x changing with each replay, every result
// checked on the device, ranks kept out of step by random pauses of their threads.
void replay_mixed(World world, int collectives, int n) {
  world.run([&](fabric::DeviceEndpoint& e) {
    const int P = e.world_size();
    constexpr unsigned kSeed = 11;
    SCOPED_TRACE(fmt::format("{}, rank {}, seed {}", world.describe(), e.rank(), kSeed));
    DeviceComm comm(e, fabric::Group::world(P), {.name = "graph"});
    constexpr int64_t kElems = kRows * kCols;
    auto x16 = e.allocate<uint16_t>(kElems, "x16");
    auto x32 = e.allocate<float>(kElems, "x32");
    auto y = e.allocate<float>(kElems, "y");
    auto counters = e.allocate<int64_t>(4, "counters");  // step of x16, of x32, wrong
    HostBarrier barrier(e);
    load_graph_kernels();
    TestStream stream;
    auto* const wrong = reinterpret_cast<unsigned long long*>(counters.data() + 2);

    struct Call {
      CollectiveDesc desc;
      CollectiveParams params;
      CollectiveConfig config;
      bool pdl;
    };
    std::vector<Call> calls;
    std::mt19937 random(kSeed);  // the same draws on all ranks
    for (int k = 0; k < collectives; ++k) {
      const auto op = static_cast<CollectiveOp>(random() % 4);
      const bool bf16 = random() % 2;
      int64_t rows = 1 + random() % kRows;
      if (op == CollectiveOp::all_to_all) rows = kRows / P * P;
      const bool bare = op == CollectiveOp::all_reduce && random() % 2 == 0;
      const int64_t cols = bare ? 8 * (1 + random() % (kCols / 8)) : 1 + random() % kCols;
      const CollectiveParams params{
          .x = bf16 ? static_cast<void*>(x16.data()) : static_cast<void*>(x32.data()),
          .y = y.data()};
      const CollectiveDesc desc =
          cuda::describe(comm, op, bf16 ? DType::bf16 : DType::f32, rows, cols, params);
      const CollectiveConfig config = comm.limits().across_machines ? choose(desc, comm.limits())
                                      : bare                        ? line(16, 64, 512)
                                                                    : draw_config(random, op);
      prepare(comm, desc, config);
      calls.push_back({desc, params, config, random() % 2 == 0});
    }
    barrier.wait();
    const TestGraph graph(stream.get(), [&] {
      launch_fill(counters.data(), x16.data(), true, kElems, e.rank(), P, stream.get());
      launch_fill(counters.data() + 1, x32.data(), false, kElems, e.rank(), P, stream.get());
      for (const Call& c : calls) {
        collective(comm, c.desc, c.params, c.config, {stream.get(), c.pdl});
        const bool bf16 = c.desc.dtype == DType::bf16;
        launch_check(c.desc.op, counters.data() + (bf16 ? 0 : 1), y.data(), bf16, c.desc.rows,
                     c.desc.cols, e.rank(), P, wrong, stream.get());
      }
    });
    barrier.wait();
    std::mt19937 jitter(kSeed * 31 + e.rank());
    for (int i = 0; i < n; ++i) {
      graph.launch(stream.get());
      if (i % 2 == 1) stream.synchronize();
      if (jitter() % 16 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(jitter() % 300));
      }
      if (i % 1000 == 0) comm.check();
    }
    stream.synchronize();
    comm.check();
    int64_t seen[3] = {};
    check_cuda(cudaMemcpy(seen, counters.data(), sizeof(seen), cudaMemcpyDefault), "counters");
    EXPECT_EQ(seen[0], n);
    EXPECT_EQ(seen[2], 0) << "wrong elements";
    barrier.wait();
  });
}

TEST(CommGraph, ReplaysOfMixedCollectivesUnderJitter) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    replay_mixed(World(kind), kCollectives, replays(kind.shared));
  }
}

TEST(CommGraph, ReplaysBetweenMachines) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  fabric::PeerFabricConfig config = fabric_config({2, device_count() < 2});
  config.links.machines = 2;
  replay_mixed(World(config), 20, 50);
}

// put, signal and wait in a graph: each rank writes its step into every other's slot, and reads
// what came; credits keep a put from overrunning its reader.
TEST(CommGraph, StreamVerbsGoOnCountingWhenReplayed) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    World world(kind);
    world.run([&](fabric::DeviceEndpoint& e) {
      const int P = e.world_size();
      DeviceComm comm(e, fabric::Group::world(P), {.name = "verbs"});
      constexpr int64_t n = 1001;
      auto x = e.allocate<float>(n, "x");
      auto boxes = e.allocate<float>(n * P, "boxes");
      auto sums = e.allocate<float>(n * P, "copies");
      auto counters = e.allocate<int64_t>(2, "counters");
      HostBarrier barrier(e);
      load_graph_kernels();
      TestStream stream;
      const LaunchContext context{stream.get()};
      auto* const wrong = reinterpret_cast<unsigned long long*>(counters.data() + 1);
      barrier.wait();
      const TestGraph graph(stream.get(), [&] {
        launch_fill(counters.data(), x.data(), false, n, e.rank(), P, stream.get());
        for (int q = 0; q < P; ++q) signal(comm, 1, q, context);  // my box is free again
        for (int q = 0; q < P; ++q) {
          wait(comm, 1, q, context);
          put(comm, boxes.data() + e.rank() * n, q, x.data(), n * 4, stream.get());
          signal(comm, 0, q, context);
        }
        for (int q = 0; q < P; ++q) wait(comm, 0, q, context);
        // The boxes are an all_gather of one row for each rank.
        launch_check(CollectiveOp::all_gather, counters.data(), boxes.data(), false, P, n, e.rank(),
                     P, wrong, stream.get());
      });
      barrier.wait();
      const int n_replays = replays(kind.shared);
      for (int i = 0; i < n_replays; ++i) {
        graph.launch(stream.get());
        if (i % 1000 == 0) stream.synchronize();
      }
      stream.synchronize();
      comm.check();
      int64_t seen[2] = {};
      check_cuda(cudaMemcpy(seen, counters.data(), sizeof(seen), cudaMemcpyDefault), "counters");
      EXPECT_EQ(seen[0], n_replays);
      EXPECT_EQ(seen[1], 0) << "wrong elements";
      barrier.wait();
    });
  }
}

}  // namespace
}  // namespace braid::cuda::test
