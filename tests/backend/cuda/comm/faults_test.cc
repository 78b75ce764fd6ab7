#include <chrono>

#include "backend/cuda/comm/comm_testing.h"

namespace braid::cuda::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A world of two whose second rank stops before its `stop`-th collective.
Error error_of_a_stopped_rank(const WorldKind& kind, const CollectiveConfig& config,
                              CollectiveOp op, bool graph, double* seconds) {
  fabric::PeerFabricConfig fabric_cfg = fabric_config(kind);
  fabric_cfg.device_deadline = milliseconds(200);
  fabric::PeerFabric fabric(fabric_cfg);
  const auto start = std::chrono::steady_clock::now();
  const Error error = error_of([&] {
    run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
      DeviceComm comm(e, fabric::Group::world(2), {.name = "tp"});
      auto x = e.allocate<float>(4096, "x");
      auto y = e.allocate<float>(4096, "y");
      HostBarrier barrier(e);
      TestStream stream;
      const CollectiveParams params{.x = x.data(), .y = y.data()};
      const auto launch = [&] {
        collective(comm, cuda::describe(comm, op, DType::f32, 4, 1024, params), params, config,
                   {stream.get()});
      };
      barrier.wait();
      launch();
      stream.synchronize();
      comm.check();
      barrier.wait();
      if (e.rank() == 1) return;  // and never comes back
      // Those after the first end at once, not each with a deadline of its own.
      if (graph) {
        const TestGraph many(stream.get(), [&] {
          for (int i = 0; i < 30; ++i) launch();
        });
        many.launch(stream.get());
      } else {
        for (int i = 0; i < 30; ++i) launch();
      }
      stream.synchronize();
      comm.check();
    });
  });
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return error;
}

TEST(CommFaults, AStoppedRankIsADeadlineOnTheOther) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  const WorldKind kind{2, device_count() < 2};
  for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather}) {
    for (CommAlgorithm algorithm :
         {CommAlgorithm::line, CommAlgorithm::direct, CommAlgorithm::copy_engine}) {
      if (op == CollectiveOp::all_reduce && algorithm == CommAlgorithm::copy_engine) continue;
      for (bool graph : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} graph {}", to_string(op), to_string(algorithm), graph));
        double seconds = 0;
        const Error error = error_of_a_stopped_rank(
            kind, {.algorithm = algorithm, .ctas = 4, .threads = 128}, op, graph, &seconds);
        EXPECT_EQ(error.code(), ErrorCode::kDeadline);
        EXPECT_THAT(error.what(), testing::MatchesRegex(fmt::format(
                                      ".*rank 0: waited 0.2[0-9]* s on the device for 'tp/{}' from "
                                      "rank 1: expected [0-9]+, seen [0-9]+.*",
                                      to_string(op))));
        EXPECT_LT(seconds, 4.);  // worlds take most of it
      }
    }
  }
}

TEST(CommFaults, AnErrorOfARankEndsTheKernelsOfTheOther) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  fabric::PeerFabricConfig config = fabric_config({2, device_count() < 2});
  config.device_deadline = std::chrono::seconds(30);
  fabric::PeerFabric fabric(config);
  const auto start = std::chrono::steady_clock::now();
  std::string told;
  const Error error = error_of([&] {
    run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
      DeviceComm comm(e, fabric::Group::world(2), {.name = "tp"});
      auto x = e.allocate<float>(64, "x");
      TestStream stream;
      HostBarrier barrier(e);
      barrier.wait();
      if (e.rank() == 1) fail(ErrorCode::kResource, "rank 1 is out of pages");
      const CollectiveParams params{.x = x.data(), .y = x.data()};
      collective(comm, cuda::describe(comm, CollectiveOp::all_reduce, DType::f32, 1, 64, params),
                 params, {}, {stream.get()});
      stream.synchronize();
      const Error mine = error_of([&] { comm.check(); });
      told = mine.what();
      EXPECT_EQ(mine.code(), ErrorCode::kAborted);
      throw mine;
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_THAT(told, HasSubstr("rank 1 failed: rank 1 is out of pages"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(CommFaults, MemoryThatIsNotSymmetricIsRefused) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  fabric::PeerFabric fabric(fabric_config({2, device_count() < 2}));
  run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    DeviceComm comm(e, fabric::Group::world(2), {.name = "tp"});
    void* own = nullptr;
    check_cuda(cudaMalloc(&own, 1 << 20), "memory");
    const CollectiveParams params{.x = own, .y = own};
    CollectiveDesc desc = cuda::describe(comm, CollectiveOp::all_reduce, DType::f32, 1, 64, params);
    EXPECT_FALSE(desc.x_symmetric);
    EXPECT_EQ(choose(desc, comm.limits()).algorithm, CommAlgorithm::line);
    const CollectiveConfig direct{.algorithm = CommAlgorithm::direct};
    EXPECT_EQ(error_of([&] { collective(comm, desc, params, direct, {}); }).code(),
              ErrorCode::kUnsupported);
    desc.x_symmetric = desc.y_symmetric = true;  // a caller that is wrong
    EXPECT_THAT(error_of([&] { collective(comm, desc, params, direct, {}); }).what(),
                HasSubstr("x is not in memory that the peers can reach"));
    cudaFree(own);
  });
}

}  // namespace
}  // namespace braid::cuda::test
