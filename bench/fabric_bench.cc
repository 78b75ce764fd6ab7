// Latency and bandwidth of the local fabric's collectives, in time per collective and GB/s of
// payload per rank. Ranks are threads: with more ranks than cores the scheduler is in the figures.
#include <benchmark/benchmark.h>

#include <vector>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/collectives/broadcast.h"
#include "braid/fabric/local/run_ranks.h"
#include "report.h"

namespace braid::fabric {
namespace {

// Times op(comm) in batches: rank 0 keeps the clock and tells the others whether to go on.
template <class MakeOp>
void measure(benchmark::State& state, int64_t bytes, MakeOp&& make_op,
             const LinkModel& links = {}) {
  const int batch = links.any_emulated() ? 10 : bytes < 64 << 10 ? 100 : 1;
  const LocalFabricConfig config{.ranks = static_cast<int>(state.range(0)), .links = links};
  run_ranks(config, [&](Endpoint& endpoint) {
    Comm comm(endpoint, Group::world(endpoint.world_size()));
    auto op = make_op(comm);
    bool more = true;
    while (more) {
      if (endpoint.rank() == 0) more = state.KeepRunningBatch(batch);
      broadcast(comm, {}, &more, sizeof(more), 0);
      for (int i = 0; more && i < batch; ++i) op();
    }
  });
  if (bytes > 0) {
    state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
  }
}

void BM_barrier(benchmark::State& state) {
  measure(state, 0, [](Comm& comm) { return [&comm] { barrier(comm); }; });
}

template <AllReduceAlgorithm algorithm>
void BM_all_reduce(benchmark::State& state) {
  const int64_t n = state.range(1);
  measure(state, n * static_cast<int64_t>(sizeof(float)), [n](Comm& comm) {
    return [&comm, n, data = std::vector<float>(n)]() mutable {
      all_reduce(comm, {}, data.data(), data.data(), n, algorithm);
    };
  });
}
constexpr auto kOneShot = AllReduceAlgorithm::one_shot;
constexpr auto kTwoShot = AllReduceAlgorithm::two_shot;

// Over emulated machines of one rank each, 1 GB/s + 20 us; beside it what bytes / bandwidth +
// latencies give.
void BM_all_reduce_emulated(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const int64_t n = state.range(1);
  const int64_t bytes = n * static_cast<int64_t>(sizeof(float));
  const Link link{.bytes_per_second = 1e9, .latency_seconds = 20e-6};
  const AllReduceAlgorithm algorithm = choose_all_reduce(ranks, bytes, link, Comm::kFarSlotBytes);
  measure(state, bytes,
          [n](Comm& comm) {
            return [&comm, n, data = std::vector<float>(n)]() mutable {
              all_reduce(comm, {}, data.data(), data.data(), n);
            };
          },
          {.machines = ranks, .cluster_link = link});
  const double sent = static_cast<double>(bytes) * (ranks - 1) / link.bytes_per_second;
  state.counters["model_us"] = algorithm == kOneShot
                                   ? 1e6 * (sent + link.latency_seconds)
                                   : 1e6 * (2 * sent / ranks + 2 * link.latency_seconds);
}

void BM_all_gather(benchmark::State& state) {
  const int64_t bytes = state.range(1);
  measure(state, bytes, [bytes](Comm& comm) {
    const std::vector<int64_t> parts(comm.size(), bytes / comm.size());
    return [&comm, parts, in = std::vector<std::byte>(parts[0]),
            out = std::vector<std::byte>(bytes)]() mutable {
      all_gather(comm, {}, in.data(), out.data(), parts);
    };
  });
}

// 576 floats: one token of a small model's residual stream.
BENCHMARK(BM_barrier)->UseRealTime()->ArgsProduct({{2, 3, 4, 8}});
BENCHMARK(BM_all_reduce<kOneShot>)
    ->UseRealTime()
    ->ArgsProduct({{2, 3, 4, 8}, {576, 4096, 1 << 15, 1 << 18, 1 << 24}});
BENCHMARK(BM_all_reduce<kTwoShot>)
    ->UseRealTime()
    ->ArgsProduct({{2, 3, 4, 8}, {576, 4096, 1 << 15, 1 << 18, 1 << 24}});
BENCHMARK(BM_all_reduce_emulated)
    ->UseRealTime()
    ->ArgsProduct({{2, 4}, {576, 1 << 15, 1 << 18, 1 << 21}});
BENCHMARK(BM_all_gather)->UseRealTime()->ArgsProduct({{2, 3, 4}, {1 << 12, 1 << 26}});

}  // namespace
}  // namespace braid::fabric

int main(int argc, char** argv) {
  return braid::run_benchmarks(argc, argv);
}
