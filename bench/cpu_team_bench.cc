// What the threads of a rank cost when they meet: a barrier inside a run, and a whole run, on a
// warm pool and on one that has gone to sleep. Arguments: threads, and for `ranks` the number of
// pools that work side by side.
#include <benchmark/benchmark.h>

#include <thread>

#include "braid/backend/cpu/thread_pool.h"
#include "report.h"

namespace braid::cpu {
namespace {

void barrier(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  constexpr int kBarriers = 1000;
  for (auto _ : state) {
    pool.run([](const Team& team) {
      for (int i = 0; i < kBarriers; ++i) team.barrier();
    });
  }
  state.SetItemsProcessed(state.iterations() * kBarriers);
}
BENCHMARK(barrier)->Arg(2)->Arg(4)->UseRealTime();

void run_warm(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run([](const Team&) {});
}
BENCHMARK(run_warm)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

void run_asleep(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto start = std::chrono::steady_clock::now();
    pool.run([](const Team&) {});
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(run_asleep)->Arg(2)->UseManualTime()->Iterations(500);

// Steps of 250 barriers on several pools at once: time per barrier of one pool.
void ranks(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int pools = static_cast<int>(state.range(1));
  constexpr int kSteps = 20;
  constexpr int kBarriers = 250;
  for (auto _ : state) {
    std::vector<std::thread> rank;
    for (int i = 0; i < pools; ++i) {
      rank.emplace_back([&] {
        ThreadPool pool(threads, threads * pools);
        for (int step = 0; step < kSteps; ++step) {
          pool.run([](const Team& team) {
            for (int b = 0; b < kBarriers; ++b) team.barrier();
          });
        }
      });
    }
    for (std::thread& r : rank) r.join();
  }
  state.SetItemsProcessed(state.iterations() * kSteps * kBarriers);
}
BENCHMARK(ranks)->Args({2, 1})->Args({2, 2})->Args({2, 3})->Args({4, 2})->UseRealTime();

}  // namespace
}  // namespace braid::cpu

int main(int argc, char** argv) {
  return braid::run_benchmarks(argc, argv);
}
