// What collectives count as sent and fetched, against what their algorithms say.
#include <string>
#include <utility>

#include "backend/cuda/comm/comm_testing.h"

namespace braid::cuda::test {
namespace {

TEST(CollectiveVolume, BytesCountedAreTheAnalyticVolume) {
  if (worlds().empty()) GTEST_SKIP() << "no CUDA device";
  for (const WorldKind& kind : worlds()) {
    World world(kind);
    world.run([&](fabric::DeviceEndpoint& e) {
      const int P = e.world_size();
      DeviceComm comm(e, fabric::Group::world(P), {.name = "t"});
      constexpr int64_t kRows = 840;  // divisible by every P
      TestBuffer x(e, kRows * 64 * 2, "x"), y(e, kRows * 64 * 2, "y");
      HostBarrier barrier(e);
      x.start(kRows * 128);
      y.start(kRows * 128);
      TestStream stream;
      barrier.wait();
      const CollectiveParams params{.x = x.data(), .y = y.data()};
      const int64_t n = kRows * 64 * 2;
      const auto bytes = [&](fabric::Verb verb, CollectiveOp op) {
        return e.traffic().bytes(verb, LinkClass::machine, "t/" + std::string(to_string(op)));
      };
      const auto run = [&](CollectiveOp op, const CollectiveConfig& config) {
        e.traffic().reset();
        collective(comm, cuda::describe(comm, op, DType::bf16, kRows, 64, params), params, config,
                   {stream.get()});
        stream.synchronize();
        comm.check();
        return std::pair(bytes(fabric::Verb::put, op), bytes(fabric::Verb::get, op));
      };
      const int64_t others = P - 1;
      using Pair = std::pair<int64_t, int64_t>;
      EXPECT_EQ(run(CollectiveOp::all_reduce, line(8, 2, 256)), Pair(others * n, 0));
      EXPECT_EQ(run(CollectiveOp::all_reduce, direct(2, 256, 4)),
                Pair(others * n / P, others * n / P));
      EXPECT_EQ(run(CollectiveOp::reduce_scatter, line(8, 2, 256)), Pair(others * n / P, 0));
      EXPECT_EQ(run(CollectiveOp::reduce_scatter, direct(2, 256, 4)), Pair(0, others * n / P));
      for (CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
        EXPECT_EQ(run(op, line(12, 2, 256)), Pair(others * n / P, 0));
        EXPECT_EQ(run(op, direct(2, 256, 4)), Pair(others * n / P, 0));
      }
      barrier.wait();
    });
  }
}

TEST(CollectiveVolume, BytesBetweenMachinesAreTheAnalyticVolume) {
  if (machines().empty()) GTEST_SKIP() << "no CUDA device";
  for (const fabric::PeerFabricConfig& config : machines()) {
    World world(config);
    world.run([&](fabric::DeviceEndpoint& e) {
      const int P = e.world_size();
      DeviceComm comm(e, fabric::Group::world(P), {.name = "t"});
      constexpr int64_t kRows = 840;
      TestBuffer x(e, kRows * 64 * 2, "x"), y(e, kRows * 64 * 2, "y");
      HostBarrier barrier(e);
      x.start(kRows * 128);
      y.start(kRows * 128);
      TestStream stream;
      const CollectiveParams params{.x = x.data(), .y = y.data()};
      const int64_t n = kRows * 64 * 2;
      const int across = P / 2, within = P / 2 - 1;  // peers
      for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter,
                              CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
        const CollectiveDesc desc = cuda::describe(comm, op, DType::bf16, kRows, 64, params);
        const CollectiveConfig config = choose(desc, comm.limits());
        ASSERT_EQ(config.algorithm, CommAlgorithm::staged);
        prepare(comm, desc, config);
        barrier.wait();
        e.traffic().reset();
        collective(comm, desc, params, config, {stream.get()});
        stream.synchronize();
        comm.check();
        const std::string tag = "t/" + std::string(to_string(op));
        const int64_t message = op == CollectiveOp::all_reduce ? n : n / P;
        EXPECT_EQ(e.traffic().bytes(fabric::Verb::put, LinkClass::cluster, tag), across * message);
        EXPECT_EQ(e.traffic().bytes(fabric::Verb::put, LinkClass::machine, tag), within * message);
        EXPECT_EQ(e.traffic().bytes(fabric::Verb::get, LinkClass::cluster, tag), 0);
        barrier.wait();
      }
    });
  }
}

}  // namespace
}  // namespace braid::cuda::test
