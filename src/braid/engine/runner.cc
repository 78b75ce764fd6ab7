#include "braid/engine/runner.h"

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/host_loop.h"
#include "braid/engine/strategy_choice.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

Topology topology_of(const RunnerConfig& config) {
  Topology topology{.machines = config.links.machines,
                    .devices = config.tp / config.links.machines};
  if (config.links.machine_link) topology.machine_link = *config.links.machine_link;
  if (config.links.cluster_link) topology.cluster_link = *config.links.cluster_link;
  topology.emulated = config.links.any_emulated();
  return topology;
}

StrategyChoice::Strategies candidates(const RunnerConfig& config) {
  if (config.schedule != "auto") return {find_strategy(config.schedule)};
  if (config.tp == 1) return {find_strategy("sequential")};  // there is nothing to hide
  StrategyChoice::Strategies all;
  for (const std::string& name : strategy_names()) all.push_back(find_strategy(name));
  return all;
}

// What a rank of its own thread runs: counts with this rank's share of the tokens.
InlineVector<Extents, kMaxMicroBatches> counts_for(const BatchCut& cut, int ranks, int rank) {
  InlineVector<Extents, kMaxMicroBatches> counts;
  for (const Work& work : cut.works()) {
    Extents n = work.extents;
    n.shard = even_part(n.token, ranks, rank).size();
    counts.push_back(n);
  }
  return counts;
}

std::unique_ptr<World> make_world(const Model& model, const RunnerConfig& c) {
  if (!c.device.cuda && c.cache.activations != DType::f32) {
    fail(ErrorCode::kUnsupported, "activations in {}: the CPU's are f32",
         name(c.cache.activations));
  }
  const WorldConfig config = {
      .ranks = c.tp, .threads = c.threads, .links = c.links, .deadline_ms = c.deadline_ms};
  return c.device.cuda ? make_cuda_world(model, config, c.device) : make_cpu_world(model, config);
}

}  // namespace

struct Runner::Impl {
  Impl(const Model& m, const RunnerConfig& c)
      : config(c),
        world(make_world(m, c)),
        rank_threads(c.tp, c.tp * c.threads),
        strategies(candidates(c)),
        times(static_cast<size_t>(c.tp)) {
    std::vector<const KernelCatalog*> catalogs;
    for (int r = 0; r < c.tp; ++r) {
      catalogs.push_back(&world->rank(r).backend().catalog());
    }
    planner = std::make_unique<ForwardPlanner>(
        [&m](const ForwardShape& shape) { return m.forward(shape); }, c.cache, std::move(catalogs),
        topology_of(c));
    if (c.profile) model.emplace(*c.profile, planner->topology());
    if (strategies.size() > 1) {
      if (!model) {
        fail(ErrorCode::kInvalidArgument, "schedule 'auto' prices strategies: it needs a profile");
      }
      choice.emplace(*planner, *model, strategies);
    }
  }

  BoundForward& prepare(const Batch& batch) {
    const BatchInfo info = batch.info(config.tp);
    const int index = choice ? choice->choose(batch) : 0;
    const OpScheduler& strategy = *strategies[static_cast<size_t>(index)];
    cut.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
    const ContextKey key = key_for(cut, index, config.tp);
    return cache.get(key, [&] { return bind(key, strategy, info); });
  }

  BoundForward bind(const ContextKey& key, const OpScheduler& strategy, const BatchInfo& info) {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    PlannedForward planned =
        planner->plan(strategy, layout, key.micro_batches, model ? &*model : nullptr);
    BoundForward bound{key, {}};
    for (int i = 0; i < config.tp; ++i) {
      const auto r = static_cast<size_t>(i);
      bound.executors.push_back(world->rank(i).bind(planned.lowered[r], std::move(planned.fused[r]),
                                                    std::move(planned.schedules[r])));
    }
    return bound;
  }

  void run_rank(const cpu::Team& ranks) {
    const auto r = static_cast<size_t>(ranks.index);
    Executor& executor = *current->executors[r];
    if (config.on_step) times[r].resize(executor.schedule().launches.size());
    cut.write(executor);
    const auto counts = counts_for(cut, config.tp, ranks.index);
    if (world->waits_on_device()) {
      executor.prepare({counts.begin(), counts.size()});
      ranks.barrier();
    }
    executor.run({counts.begin(), counts.size()}, times[r]);
  }

  const RunnerConfig config;
  const std::unique_ptr<World> world;
  cpu::ThreadPool rank_threads;
  const StrategyChoice::Strategies strategies;  // more than one: `auto` chooses
  std::vector<std::vector<LaunchTime>> times;   // [ranks, launches]
  std::unique_ptr<ForwardPlanner> planner;
  std::optional<CostModel> model;
  std::optional<StrategyChoice> choice;
  ForwardCache cache;
  BatchCut cut;
  BoundForward* current = nullptr;
  int64_t rows = 0;  // of logits
};

Runner::Runner(const Model& model, const RunnerConfig& config)
    : impl_(std::make_unique<Impl>(model, config)) {}

Runner::~Runner() = default;

void Runner::step(const Batch& batch) {
  impl_->world->fabric().rethrow_error();
  impl_->current = &impl_->prepare(batch);
  impl_->rows = batch.extents().row;
  impl_->rank_threads.run([&](const cpu::Team& team) {
    try {
      impl_->run_rank(team);
    } catch (...) {
      impl_->world->fabric().abort(team.index, std::current_exception());
      throw;
    }
  });
  if (impl_->config.on_step) impl_->config.on_step(*this);
}

TensorView Runner::logits() {
  BRAID_CHECK(impl_->current != nullptr, "no step ran yet");
  return impl_->current->executors[0]->host_output(0, impl_->rows);
}

std::unique_ptr<TokenLoop> Runner::loop(LoopRequest request) {
  const int64_t page_size = impl_->config.cache.page_size;
  if (!impl_->world->samples_on_device()) {
    return std::make_unique<HostLoop>(*this, std::move(request), page_size, logits());
  }
  const auto cached = std::ssize(request.prompt);
  Batch batch(page_size);
  batch.add(request.prompt.last(1), cached - 1, request.hold(cached + 1), 1);
  BoundForward& prompt = *impl_->current;
  BoundForward& step = impl_->prepare(batch);
  for (int r = 0; r < impl_->config.tp; ++r) {
    Executor& executor = *step.executors[static_cast<size_t>(r)];
    impl_->cut.write(executor);
    const auto counts = counts_for(impl_->cut, impl_->config.tp, r);
    executor.set_counts({counts.begin(), counts.size()});
  }
  return impl_->world->loop(std::move(request), prompt.executors, step.executors, page_size);
}

Runner::Step Runner::last_step(int rank) const {
  BRAID_CHECK(impl_->current != nullptr, "no step ran yet");
  const auto r = static_cast<size_t>(rank);
  return {impl_->current->executors.at(r).get(), impl_->times[r]};
}

std::span<const Work> Runner::last_works() const {
  return impl_->cut.works();
}

const CostModel* Runner::cost_model() const {
  return impl_->model ? &*impl_->model : nullptr;
}

const ForwardPlanner& Runner::planner() const {
  return *impl_->planner;
}

std::vector<std::string> Runner::explain() const {
  std::vector<std::string> lines;
  if (impl_->choice) lines = impl_->choice->explanations();
  for (const auto& [key, launches] : impl_->cache.keys()) {
    lines.push_back(fmt::format("{}: {}, {} launches", to_string(key),
                                impl_->strategies[static_cast<size_t>(key.strategy)]->name(),
                                launches));
  }
  if (impl_->current != nullptr) {
    const std::string device = impl_->current->executors[0]->replay().describe();
    if (!device.empty()) lines.push_back("the last plan: " + device);
  }
  return lines;
}

ForwardCache::Counters Runner::cache_counters() const {
  return impl_->cache.counters();
}

}  // namespace braid
