// What deciding costs: Program, lowering, Schedule, verification and memory plan the first time,
// and the host's work of a cached step, on the null backend. Llama-3-8B's shape, 8 ranks.
#include <benchmark/benchmark.h>

#include <random>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/prompt_choice.h"
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

// Planners for prompts with tokens over ranks of H100.
struct PromptWorld {
  std::unique_ptr<const ForwardPlanner> planner(SpMode mode, int ranks) const {
    const Topology topology{.machines = 1, .devices = ranks};
    CacheShape cache = kCache;
    cache.activations = DType::bf16;
    return std::make_unique<const ForwardPlanner>(
        [this](const ForwardShape& s) { return shape.forward(s); }, cache,
        std::vector<const KernelCatalog*>(ranks, &backend.catalog()), topology,
        sequence_mesh(mode, topology, shape.config.Hq, {}));
  }

  NullBackend backend;
  ModelShape shape = read_model_shape(config_path("llama-3-8b"));
  const std::shared_ptr<const OpScheduler> strategy = find_strategy("sequence_parallel");
  const Profile profile = load_profile("h100");
};

// A prompt whose length is new each time, behind cached tokens.
void new_length(benchmark::State& state, SpMode mode, int ranks) {
  const PromptWorld world;
  const auto planner = world.planner(mode, ranks);
  const CostModel cost(world.profile, planner->topology());
  int64_t tokens = state.range(0);
  for (auto _ : state) {
    const SequenceLayout q = even_zigzag_layout(++tokens, ranks, state.range(1));
    const SequenceLayout kv = even_zigzag_layout(state.range(1) + tokens, ranks);
    const PlannedForward planned = planner->plan_tokens(
        *world.strategy, q, kv, key_for_tokens(q, kv, 1).micro_batches[0], &cost);
    benchmark::DoNotOptimize(planned.schedules.data());
    state.counters["launches"] = static_cast<double>(planned.schedules[0].launches.size());
  }
}
BENCHMARK_CAPTURE(new_length, one, SpMode::ring, 1)->Args({4000, 0})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_length, ring, SpMode::ring, 4)
    ->Args({4000, 0})
    ->Args({8000, 8000})
    ->Args({200, 8000})
    ->Unit(benchmark::kMillisecond);

// The choice of `--sp auto` for the first prompt: of a power of two, or between two.
void first_of_size(benchmark::State& state, int ranks) {
  const PromptWorld world;
  PromptChoice::Planners planners;
  planners.push_back(world.planner(SpMode::ring, 1));
  for (SpMode mode : {SpMode::ulysses, SpMode::ring}) {
    planners.push_back(world.planner(mode, ranks));
  }
  for (auto _ : state) {
    PromptChoice choice(planners, world.strategy, world.profile,
                        kCache.pages_per_sequence * kCache.page_size);
    benchmark::DoNotOptimize(choice.choose(state.range(0), 0, [](int) { return true; }));
  }
}
BENCHMARK_CAPTURE(first_of_size, auto, 4) -> Arg(4096) -> Arg(4000)
    -> Unit(benchmark::kMillisecond);

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
