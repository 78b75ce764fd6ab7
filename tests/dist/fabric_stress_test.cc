#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <thread>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/all_to_all.h"
#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/collectives/broadcast.h"
#include "braid/fabric/collectives/reduce_scatter.h"
#include "dist/fabric_testing.h"
#include "dist/worlds.h"

// Mixed collectives back to back, drawn from a seed, while ranks and transfers are late at random:
// any missing wait shows as wrong bits.
namespace braid::fabric {
namespace {

// Runs call number `call`: its kind and size follow from the seed, the same on all ranks of `comm`.
// `domain` keeps the data of different groups apart.
void run_call(Comm& comm, uint64_t call, uint64_t domain, int64_t max_n) {
  const int P = comm.size();
  const int me = comm.index();
  const uint64_t data = call * 16 + domain;
  const uint64_t draw = mix(call * 77 + domain);
  const int64_t n = static_cast<int64_t>(mix(draw)) % max_n;
  const int64_t size = std::abs(n);
  std::vector<int> indices(P);
  std::iota(indices.begin(), indices.end(), 0);
  const auto begin_of = [](const std::vector<int64_t>& parts, int rank) {
    return std::accumulate(parts.begin(), parts.begin() + rank, int64_t{0});
  };
  switch (draw % 6) {
    case 0:
    case 1: {
      std::vector<float> x(size);
      for (int64_t i = 0; i < size; ++i) x[i] = float_of(data, me, i);
      all_reduce(comm, {}, x.data(), x.data(), size,
                 draw % 6 == 0 ? AllReduceAlgorithm::one_shot : AllReduceAlgorithm::two_shot);
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_TRUE(same_bits(x[i], sum_of(data, indices, i))) << "all_reduce, call " << call;
      }
      break;
    }
    case 2: {
      const auto counts = uneven_parts(draw, P, size);
      std::vector<float> x(begin_of(counts, P));
      std::vector<float> y(counts[me], NAN);
      for (int64_t i = 0; i < std::ssize(x); ++i) x[i] = float_of(data, me, i);
      reduce_scatter(comm, {}, x.data(), y.data(), counts);
      for (int64_t i = 0; i < counts[me]; ++i) {
        ASSERT_TRUE(same_bits(y[i], sum_of(data, indices, begin_of(counts, me) + i)))
            << "reduce_scatter, call " << call;
      }
      break;
    }
    case 3: {
      const auto bytes = uneven_parts(draw, P, size);
      std::vector<std::byte> x(bytes[me]);
      std::vector<std::byte> y(begin_of(bytes, P), std::byte{0xee});
      for (int64_t i = 0; i < bytes[me]; ++i) x[i] = byte_of(data, me, i);
      all_gather(comm, {}, x.data(), y.data(), bytes);
      int64_t at = 0;
      for (int p = 0; p < P; ++p) {
        for (int64_t i = 0; i < bytes[p]; ++i) {
          ASSERT_EQ(y[at++], byte_of(data, p, i)) << "all_gather, call " << call;
        }
      }
      break;
    }
    case 4: {
      const auto matrix = uneven_parts(draw, P * P, size);
      std::vector<std::byte> x;
      for (int q = 0; q < P; ++q) {
        for (int64_t i = 0; i < matrix[me * P + q]; ++i) {
          x.push_back(byte_of(data, me * P + q, i));
        }
      }
      int64_t received = 0;
      for (int p = 0; p < P; ++p) received += matrix[p * P + me];
      std::vector<std::byte> y(received, std::byte{0xee});
      all_to_all(comm, {}, x.data(), y.data(), matrix);
      int64_t at = 0;
      for (int p = 0; p < P; ++p) {
        for (int64_t i = 0; i < matrix[p * P + me]; ++i) {
          ASSERT_EQ(y[at++], byte_of(data, p * P + me, i)) << "all_to_all, call " << call;
        }
      }
      break;
    }
    default: {
      const int root = static_cast<int>(draw / 8 % P);
      std::vector<std::byte> x(size, std::byte{0xee});
      if (me == root) {
        for (int64_t i = 0; i < size; ++i) x[i] = byte_of(data, root, i);
      }
      broadcast(comm, {}, x.data(), size, root);
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(x[i], byte_of(data, root, i)) << "broadcast, call " << call;
      }
    }
  }
}

// `calls` collectives on the world and, if it is even, on rows and columns of a 2 x P/2 mesh.
void stress(const LocalFabricConfig& config, uint64_t seed, int calls, int64_t max_n,
            const World& world = {}) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << world.name() << ", "
                                  << LocalFabric(config).describe());
  run_world(world, config, [&](Endpoint& e) {
    const int P = e.world_size();
    Comm whole(e, Group::world(P), {.name = "world", .slot_bytes = 1024});
    std::optional<Comm> row;
    std::optional<Comm> column;
    if (P % 2 == 0) {
      const int width = P / 2;
      row.emplace(e, Group::strided(e.rank() / width * width, width, 1),
                  CommConfig{.name = "row", .slot_bytes = 512});
      column.emplace(e, Group::strided(e.rank() % width, 2, width),
                     CommConfig{.name = "column", .slot_bytes = 2048});
    }
    std::mt19937_64 late(mix(seed + e.rank()));
    for (int call = 0; call < calls; ++call) {
      if (late() % 8 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(late() % 100));
      }
      const uint64_t id = seed * 100000 + call;
      const uint64_t where = row ? mix(id) % 3 : 0;
      if (where == 0) run_call(whole, id, 0, max_n);
      if (where == 1) run_call(*row, id, 1 + row->group()[0], max_n);
      if (where == 2) run_call(*column, id, 8 + column->group()[0] % 8, max_n);
      if (testing::Test::HasFatalFailure()) fail(ErrorCode::kInvalidArgument, "wrong bits");
    }
    barrier(whole);
  });
}

TEST(FabricStress, MixedCollectivesWithLateRanks) {
  for (int ranks : {2, 3, 4, 8}) {
    stress({.ranks = ranks, .deadline = std::chrono::seconds(60)}, 10 + ranks, 1500, 3000);
  }
}

TEST(FabricStress, MixedCollectivesOverProcesses) {
  for (int ranks : {2, 3, 4}) {
    for (const World& world : worlds(ranks)) {
      if (world.processes == 0) continue;
      // Small messages, and such that UCX fetches from the sender.
      stress({.ranks = ranks, .deadline = std::chrono::seconds(60)}, 20 + ranks, 400, 3000, world);
      stress({.ranks = ranks, .deadline = std::chrono::seconds(60)}, 30 + ranks, 40, 300000, world);
    }
  }
}

TEST(FabricStress, MixedCollectivesWithRandomlyDelayedTransfers) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 4);
    stress({.ranks = ranks,
            .deadline = std::chrono::seconds(60),
            .links = {.jitter = Jitter{seed, 60e-6}}},
           100 + seed, 120, 3000);
  }
}

TEST(FabricStress, MixedCollectivesOverEmulatedMachines) {
  for (bool shared : {false, true}) {
    stress({.ranks = 4,
            .deadline = std::chrono::seconds(60),
            .links = {.machines = 2, .cluster_link = Link{1e9, 20e-6}, .shared_port = shared}},
           shared ? 201 : 200, 300, 3000);
  }
}

// Two unordered Comms of the same ranks, each with a thread of its own, as two streams use them.
TEST(FabricStress, TwoCommsRunSideBySide) {
  for (const World& world : worlds(2)) {
    run_world(world, {.ranks = 2, .threads_per_rank = 2}, [](Endpoint& e) {
      Comm compute(e, Group::world(2), {.name = "compute", .slot_bytes = 1024});
      Comm comm(e, Group::world(2), {.name = "comm", .slot_bytes = 1024});
      std::exception_ptr error;
      std::thread other([&] {
        try {
          for (int call = 0; call < 500; ++call) run_call(comm, call, 1, 2000);
        } catch (...) {
          error = std::current_exception();
        }
      });
      for (int call = 0; call < 500; ++call) run_call(compute, 7000 + call, 2, 2000);
      other.join();
      if (error) std::rethrow_exception(error);
    });
  }
}

}  // namespace
}  // namespace braid::fabric
