#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/all_to_all.h"
#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/collectives/broadcast.h"
#include "braid/fabric/collectives/reduce_scatter.h"
#include "dist/fabric_testing.h"
#include "dist/worlds.h"

namespace braid::fabric {
namespace {

// How a rank runs a collective: ranks, threads of its team, lanes and slot size of its Comm.
struct RankSetup {
  int ranks;
  int threads;
  int lanes;
  int64_t slot_bytes;
  World world = {};
};

std::string name(const testing::TestParamInfo<RankSetup>& info) {
  const RankSetup& s = info.param;
  return fmt::format("P{}_threads{}_lanes{}_slot{}_{}", s.ranks, s.threads, s.lanes, s.slot_bytes,
                     s.world.name());
}

class Collectives : public testing::TestWithParam<RankSetup> {
 protected:
  void SetUp() override {
    if (!GetParam().world.here()) GTEST_SKIP() << "this build has no UCX";
  }
  // fn(comm, run) on each rank; run(f) calls f(team) on all threads of the rank's team.
  template <class Fn>
  void on_ranks(Fn&& fn) {
    const RankSetup s = GetParam();
    const LocalFabricConfig config{
        .ranks = s.ranks, .threads_per_rank = s.threads, .deadline = std::chrono::seconds(30)};
    run_world(s.world, config, [&](Endpoint& e) {
      Comm comm(e, Group::world(s.ranks),
                {.name = "test", .lanes = s.lanes, .slot_bytes = s.slot_bytes});
      cpu::ThreadPool pool(s.threads, s.ranks * s.threads);
      fn(comm, [&](auto&& f) { pool.run(f); });
    });
  }
};

const std::vector<int64_t> kSizes = {0, 1, 3, 16, 17, 576, 1000, 4099};

TEST_P(Collectives, AllReduceGivesTheSumInRankOrderToTheBit) {
  on_ranks([](Comm& comm, auto run) {
    uint64_t call = 0;
    for (int64_t n : kSizes) {
      for (auto algorithm : {AllReduceAlgorithm::one_shot, AllReduceAlgorithm::two_shot}) {
        for (bool in_place : {false, true}) {
          ++call;
          Guarded<float> in(n);
          Guarded<float> out(n);
          for (int64_t i = 0; i < n; ++i) in[i] = float_of(call, comm.index(), i);
          float* const result = in_place ? in.data() : out.data();
          run([&](const cpu::Team& team) {
            all_reduce(comm, team, in.data(), result, n, algorithm);
          });
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_TRUE(same_bits(result[i], sum_of(call, comm.group().ranks, i)))
                << to_string(algorithm) << " n " << n << " i " << i << " rank " << comm.index();
          }
          EXPECT_TRUE(in.guards_intact() && out.guards_intact());
        }
      }
    }
  });
}

// |error| <= (P-1) eps sum |x| for any order of P terms.
TEST_P(Collectives, AllReduceIsWithinRoundingOfDouble) {
  on_ranks([](Comm& comm, auto run) {
    constexpr int64_t n = 1000;
    std::vector<float> data(n);
    for (int64_t i = 0; i < n; ++i) data[i] = float_of(99, comm.index(), i);
    run([&](const cpu::Team& team) { all_reduce(comm, team, data.data(), data.data(), n); });
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      double absolute = 0;
      for (int p = 0; p < comm.size(); ++p) {
        sum += float_of(99, p, i);
        absolute += std::abs(float_of(99, p, i));
      }
      ASSERT_LE(std::abs(data[i] - sum), (comm.size() - 1) * 0x1p-24 * absolute) << i;
    }
  });
}

TEST_P(Collectives, ReduceScatterUneven) {
  on_ranks([](Comm& comm, auto run) {
    const int P = comm.size();
    uint64_t call = 1000;
    for (int64_t n : kSizes) {
      for (int64_t M : {1, 3}) {
        const auto counts = uneven_parts(++call, P, n);
        const int64_t N = std::accumulate(counts.begin(), counts.end(), int64_t{0});
        const int64_t begin =
            std::accumulate(counts.begin(), counts.begin() + comm.index(), int64_t{0});
        const int64_t mine = counts[comm.index()];
        Guarded<float> in(M * N);
        Guarded<float> out(M * mine);
        for (int64_t i = 0; i < M * N; ++i) in[i] = float_of(call, comm.index(), i);
        run([&](const cpu::Team& team) {
          reduce_scatter_columns(comm, team, in.data(), out.data(), M, counts);
        });
        for (int64_t m = 0; m < M; ++m) {
          for (int64_t j = 0; j < mine; ++j) {
            ASSERT_TRUE(
                same_bits(out[m * mine + j], sum_of(call, comm.group().ranks, m * N + begin + j)))
                << "n " << n << " M " << M << " at " << m << ", " << j;
          }
        }
        EXPECT_TRUE(in.guards_intact() && out.guards_intact());
      }
    }
  });
}

TEST_P(Collectives, AllGatherUnevenRowsAndColumns) {
  on_ranks([](Comm& comm, auto run) {
    const int P = comm.size();
    uint64_t call = 2000;
    for (int64_t n : kSizes) {
      for (int64_t M : {1, 5}) {
        const auto widths = uneven_parts(++call, P, n);
        const int64_t N = std::accumulate(widths.begin(), widths.end(), int64_t{0});
        const int64_t mine = widths[comm.index()];
        Guarded<std::byte> in(M * mine);
        Guarded<std::byte> out(M * N);
        for (int64_t i = 0; i < M * mine; ++i) in[i] = byte_of(call, comm.index(), i);
        run([&](const cpu::Team& team) {
          all_gather_columns(comm, team, in.data(), out.data(), M, widths);
        });
        for (int64_t m = 0; m < M; ++m) {
          int64_t column = 0;
          for (int p = 0; p < P; ++p) {
            for (int64_t j = 0; j < widths[p]; ++j, ++column) {
              ASSERT_EQ(out[m * N + column], byte_of(call, p, m * widths[p] + j))
                  << "n " << n << " M " << M << " row " << m << " column " << column;
            }
          }
        }
        EXPECT_TRUE(in.guards_intact() && out.guards_intact());
      }
    }
  });
}

TEST_P(Collectives, AllGatherInPlace) {
  on_ranks([](Comm& comm, auto run) {
    const auto bytes = uneven_parts(77, comm.size(), 3000);
    const int64_t begin = std::accumulate(bytes.begin(), bytes.begin() + comm.index(), int64_t{0});
    Guarded<std::byte> out(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
    for (int64_t i = 0; i < bytes[comm.index()]; ++i) {
      out[begin + i] = byte_of(77, comm.index(), i);
    }
    run([&](const cpu::Team& team) {
      all_gather(comm, team, out.data() + begin, out.data(), bytes);
    });
    int64_t at = 0;
    for (int p = 0; p < comm.size(); ++p) {
      for (int64_t i = 0; i < bytes[p]; ++i) ASSERT_EQ(out[at++], byte_of(77, p, i));
    }
    EXPECT_TRUE(out.guards_intact());
  });
}

TEST_P(Collectives, AllToAllByAMatrixOfCounts) {
  on_ranks([](Comm& comm, auto run) {
    const int P = comm.size();
    const int me = comm.index();
    uint64_t call = 3000;
    for (int64_t n : kSizes) {
      const auto matrix = uneven_parts(++call, P * P, P * n);
      int64_t sent = 0;
      int64_t received = 0;
      for (int p = 0; p < P; ++p) {
        sent += matrix[me * P + p];
        received += matrix[p * P + me];
      }
      Guarded<std::byte> in(sent);
      Guarded<std::byte> out(received);
      // Byte i of the piece from p to q is byte_of(call, p * P + q, i).
      int64_t at = 0;
      for (int q = 0; q < P; ++q) {
        for (int64_t i = 0; i < matrix[me * P + q]; ++i) in[at++] = byte_of(call, me * P + q, i);
      }
      run([&](const cpu::Team& team) { all_to_all(comm, team, in.data(), out.data(), matrix); });
      at = 0;
      for (int p = 0; p < P; ++p) {
        for (int64_t i = 0; i < matrix[p * P + me]; ++i) {
          ASSERT_EQ(out[at++], byte_of(call, p * P + me, i)) << "n " << n << " from " << p;
        }
      }
      EXPECT_TRUE(in.guards_intact() && out.guards_intact());
    }
  });
}

TEST_P(Collectives, BroadcastFromEachRoot) {
  on_ranks([](Comm& comm, auto run) {
    uint64_t call = 4000;
    for (int64_t n : kSizes) {
      for (int root = 0; root < comm.size(); ++root) {
        ++call;
        Guarded<std::byte> data(n);
        if (comm.index() == root) {
          for (int64_t i = 0; i < n; ++i) data[i] = byte_of(call, root, i);
        }
        run([&](const cpu::Team& team) { broadcast(comm, team, data.data(), n, root); });
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(data[i], byte_of(call, root, i));
        EXPECT_TRUE(data.guards_intact());
      }
    }
  });
}

TEST_P(Collectives, BarrierHoldsEveryRankUntilAllAreThere) {
  const Shared<std::atomic<int>> arrived;
  const int threads = GetParam().threads;
  on_ranks([&](Comm& comm, auto run) {
    for (int step = 1; step <= 20; ++step) {
      run([&](const cpu::Team& team) {
        ++*arrived;
        barrier(comm, team);
        EXPECT_GE(arrived->load(), step * comm.size() * threads);
      });
    }
  });
}

std::vector<RankSetup> setups() {
  std::vector<RankSetup> all;
  for (int ranks = 1; ranks <= 8; ++ranks) all.push_back({ranks, 1, 1, 128 << 10});
  // Many rounds, and teams that are smaller and larger than the number of lanes.
  for (int ranks : {2, 3, 5, 8}) all.push_back({ranks, 1, 1, 64});
  all.push_back({2, 2, 2, 4096});
  all.push_back({3, 2, 2, 192});
  all.push_back({2, 1, 3, 1024});
  all.push_back({4, 2, 1, 1024});
  for (int processes : {2, 3, 4, 8}) all.push_back({processes, 1, 1, 4096, {processes}});
  all.push_back({4, 1, 1, 64, {2}});  // two ranks in each process
  all.push_back({2, 2, 2, 128 << 10, {2}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Fabric, Collectives, testing::ValuesIn(setups()), name);

}  // namespace
}  // namespace braid::fabric
