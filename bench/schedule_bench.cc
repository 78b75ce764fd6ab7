// What deciding costs: Program, lowering, Schedule, verification and memory plan the first time,
// and the host's work of a cached step, on the null backend. Llama-3-8B's shape, 8 ranks.
#include <benchmark/benchmark.h>

#include <random>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/strategies/registry.h"
#include "report.h"

namespace braid {
namespace {

constexpr int kRanks = 8;
constexpr CacheShape kCache = {.pages = 4096, .page_size = 64, .pages_per_sequence = 128};

// A world of null devices for one model.
struct World {
  explicit World(const std::string& config)
      : shape(read_model_shape(config)),
        planner([this](const ForwardShape& s) { return shape.forward(s); }, kCache,
                std::vector<const KernelCatalog*>(kRanks, &backend.catalog()),
                {.machines = 1, .devices = kRanks}) {}

  BoundForward bind(const ContextKey& key, const OpScheduler& strategy, const BatchInfo& info) {
    PlannedForward planned = planner.plan(strategy, strategy.layout(info), key);
    BoundForward bound{key, {}};
    for (size_t r = 0; r < planned.schedules.size(); ++r) {
      bound.executors.push_back(std::make_unique<Executor>(
          std::move(planned.programs[r]), std::move(planned.schedules[r]), backend,
          [](const Value& value) {
            return make_view(nullptr, value.type.dtype, value.type.shape);
          }));
    }
    return bound;
  }

  NullBackend backend;
  ModelShape shape;
  ForwardPlanner planner;
};

std::string config_path(const std::string& name) {
  return std::string(BRAID_SOURCE_DIR) + "/configs/" + name + ".json";
}

// `decodes` sequences of one token, and a prompt.
void fill(Batch& batch, int64_t decodes, int64_t prompt, int64_t step) {
  static const std::vector<int32_t> kTokens(8192, 7);
  std::vector<int32_t> pages(128);
  batch.clear();
  for (int64_t s = 0; s <= decodes; ++s) {
    for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<int32_t>(s * 128 + p) % 4096;
    const int64_t tokens = s < decodes ? 1 : prompt;
    if (tokens == 0) continue;
    batch.add(std::span(kTokens).first(static_cast<size_t>(tokens)),
              s < decodes ? 100 + step % 7000 : 0, pages, 1);
  }
}

void first_time(benchmark::State& state, const std::string& strategy_name) {
  World world(config_path("llama-3-8b"));
  const auto strategy = find_strategy(strategy_name);
  Batch batch(kCache.page_size);
  fill(batch, 0, state.range(0), 0);
  const BatchInfo info = batch.info(kRanks);
  for (auto _ : state) {
    BatchCut cut;
    cut.assign(batch, strategy->split(info), strategy->name());
    const ContextKey key = key_for(cut, 0, kRanks);
    const PlannedForward planned = world.planner.plan(*strategy, strategy->layout(info), key);
    benchmark::DoNotOptimize(planned.schedules.data());
    state.counters["launches"] = static_cast<double>(planned.schedules[0].launches.size());
  }
  state.counters["ms_per_rank"] = benchmark::Counter(
      1e-3 * kRanks, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(first_time, sequential, "sequential")
    ->Arg(1)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(first_time, overlap, "overlap")->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(first_time, nanoflow, "nanoflow")->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(first_time, tokenweave, "tokenweave")->Arg(512)->Unit(benchmark::kMillisecond);

// One rank's share of a step whose plan is cached: the batch's metadata, the cut, the lookup, the
// inputs written, the launches' rows moved.
void cached_step(benchmark::State& state, const std::string& strategy_name) {
  World world(config_path("llama-3-8b"));
  const auto strategy = find_strategy(strategy_name);
  ForwardCache cache;
  Batch batch(kCache.page_size);
  BatchCut cut;
  int64_t step = 0;
  for (auto _ : state) {
    fill(batch, state.range(0), 0, ++step);
    const BatchInfo info = batch.info(kRanks);
    cut.assign(batch, strategy->split(info), strategy->name());
    const ContextKey key = key_for(cut, 0, kRanks);
    const auto forward = cache.get(key, [&] { return world.bind(key, *strategy, info); });
    Executor& executor = *forward->executors[0];
    cut.write(executor);
    InlineVector<Extents, kMaxMicroBatches> counts;
    for (const Work& work : cut.works()) counts.push_back(work.extents);
    executor.run({counts.begin(), counts.size()});
  }
}
BENCHMARK_CAPTURE(cached_step, sequential, "sequential")
    ->Arg(1)
    ->Arg(32)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(cached_step, overlap, "overlap")->Arg(1)->Arg(32)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(cached_step, tokenweave, "tokenweave")
    ->Arg(32)
    ->Arg(64)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  return braid::run_benchmarks(argc, argv);
}
