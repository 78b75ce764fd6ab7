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
  topology.mapped = !config.links.machine_link;
  return topology;
}

StrategyChoice::Strategies candidates(const RunnerConfig& config) {
  if (config.schedule != "auto") return {find_strategy(config.schedule)};
  if (config.tp == 1) return {find_strategy("sequential")};  // there is nothing to hide
  StrategyChoice::Strategies all;
  for (const std::string& name : strategy_names()) all.push_back(find_strategy(name));
  if (config.sp) all.push_back(find_strategy("sequence_parallel"));
  return all;
}

// What a rank of its own thread runs: counts with this rank's share of the tokens.
InlineVector<Extents, kMaxMicroBatches> counts_for(std::span<const Work> works, int ranks,
                                                   int rank) {
  InlineVector<Extents, kMaxMicroBatches> counts;
  for (const Work& work : works) {
    Extents n = work.extents;
    n.shard = even_part(n.token, ranks, rank).size();
    counts.push_back(n);
  }
  return counts;
}

MakeForward forward_of(const Model& model) {
  return [&model](const ForwardShape& shape) { return model.forward(shape); };
}

// How ranks divide sequences, where they do.
std::optional<SequenceMesh> mesh_of(const Model& model, const RunnerConfig& c) {
  if (!c.sp || c.tp == 1) return {};
  c.links.validate(c.tp);
  const Topology topology = topology_of(c);
  std::optional<CostModel> cost;
  if (c.profile) cost.emplace(*c.profile, topology);
  ops::TakesStages takes;
  if (c.device.cuda && !c.sp->mode) takes = stages_of_gpu(c.device.first_gpu());
  return choose_mesh(*c.sp, forward_of(model), model.config().Hq, c.cache, topology,
                     *candidates(c).back(), takes, cost ? &*cost : nullptr);
}

std::unique_ptr<World> make_world(const Model& model, const RunnerConfig& c,
                                  const std::optional<SequenceMesh>& mesh) {
  if (!c.device.cuda && c.cache.activations != DType::f32) {
    fail(ErrorCode::kUnsupported, "activations in {}: the CPU's are f32",
         name(c.cache.activations));
  }
  const WorldConfig config = {.ranks = c.tp,
                              .threads = c.threads,
                              .links = c.links,
                              .deadline_ms = c.deadline_ms,
                              .sequence = mesh ? std::optional(mesh->mesh) : std::nullopt,
                              .communication = c.communication};
  return c.device.cuda ? make_cuda_world(model, config, c.device) : make_cpu_world(model, config);
}

}  // namespace

bool needs_profile(const RunnerConfig& config) {
  const bool strategies = config.schedule == "auto" && candidates(config).size() > 1;
  return config.tp > 1 && (strategies || (config.sp && !config.sp->mode));
}

struct Runner::Impl {
  Impl(const Model& m, const RunnerConfig& c)
      : config(c),
        mesh(mesh_of(m, c)),
        world(make_world(m, c, mesh)),
        rank_threads(c.tp, c.tp * c.threads),
        strategies(candidates(c)),
        times(static_cast<size_t>(c.tp)) {
    if (c.profile) model.emplace(*c.profile, topology_of(c));
    if (strategies.size() > 1 && !model) {
      fail(ErrorCode::kInvalidArgument, "schedule 'auto' prices strategies: it needs a profile");
    }
    if (mesh) {
      sequence.emplace(forward_of(m), c.cache, *mesh, strategies, *world,
                       model ? &*model : nullptr);
      return;
    }
    std::vector<const KernelCatalog*> catalogs;
    for (int r = 0; r < c.tp; ++r) {
      catalogs.push_back(&world->rank(r).backend().catalog());
    }
    planner = std::make_unique<ForwardPlanner>(forward_of(m), c.cache, std::move(catalogs),
                                               topology_of(c));
    if (strategies.size() > 1) choice.emplace(*planner, *model, strategies);
  }

  std::shared_ptr<BoundForward> prepare(const Batch& batch) {
    if (sequence) return sequence->prepare(batch, cache, cut, run_before());
    const BatchInfo info = batch.info(config.tp);
    const int index = choice ? choice->choose(batch) : 0;
    const OpScheduler& strategy = *strategies[static_cast<size_t>(index)];
    cut.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
    const ContextKey key = key_for(cut, index, config.tp);
    return cache.get(key, [&] { return bind(key, strategy, info); });
  }

  // Runs what rank 0 is given before a step.
  SequenceRanks::Run run_before() {
    return [this](BoundForward& before, const SequenceRanks::Write& write) {
      const Work work{.extents = {.sequence = 1}};
      run(before, {&work, 1}, write);
    };
  }

  BoundForward bind(const ContextKey& key, const OpScheduler& strategy, const BatchInfo& info) {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    PlannedForward planned = planner->plan(strategy, layout, key, model ? &*model : nullptr);
    BoundForward bound{key, {}};
    for (int i = 0; i < config.tp; ++i) {
      const auto r = static_cast<size_t>(i);
      bound.executors.push_back(world->rank(i).bind(planned.lowered[r], std::move(planned.fused[r]),
                                                    std::move(planned.schedules[r])));
    }
    return bound;
  }

  // On all ranks that have a part in it.
  void run(BoundForward& bound, std::span<const Work> works, const SequenceRanks::Write& write) {
    try {
      rank_threads.run([&](const cpu::Team& team) {
        try {
          run_rank(team, bound, works, write);
        } catch (...) {
          world->fabric().abort(team.index, std::current_exception());
          throw;
        }
      });
    } catch (...) {
      world->fabric().rethrow_error();  // what ended the job, not what a rank then saw of it
      throw;
    }
  }

  void run_rank(const cpu::Team& ranks, BoundForward& bound, std::span<const Work> works,
                const SequenceRanks::Write& write) {
    const auto r = static_cast<size_t>(ranks.index);
    if (r >= bound.executors.size()) return;
    Executor& executor = *bound.executors[r];
    if (config.on_step) times[r].resize(executor.schedule().launches.size());
    write(executor, ranks.index);
    const auto counts = counts_for(works, static_cast<int>(bound.executors.size()), ranks.index);
    // A rank that computes alone waits for nobody.
    if (world->waits_on_device() && std::ssize(bound.executors) == config.tp) {
      executor.prepare({counts.begin(), counts.size()});
      ranks.barrier();
    }
    executor.run({counts.begin(), counts.size()}, times[r]);
  }

  const RunnerConfig config;
  const std::optional<SequenceMesh> mesh;
  const std::unique_ptr<World> world;
  cpu::ThreadPool rank_threads;
  const StrategyChoice::Strategies strategies;  // more than one: `auto` chooses
  std::vector<std::vector<LaunchTime>> times;   // [ranks, launches]
  std::unique_ptr<ForwardPlanner> planner;
  std::optional<CostModel> model;
  std::optional<StrategyChoice> choice;
  std::optional<SequenceRanks> sequence;  // in place of planner and choice
  ForwardCache cache;
  BatchCut cut;
  std::shared_ptr<BoundForward> current;  // of the last step
  std::shared_ptr<BoundForward> looping;  // of a loop on the device
  int64_t rows = 0;                       // of logits
};

Runner::Runner(const Model& model, const RunnerConfig& config)
    : impl_(std::make_unique<Impl>(model, config)) {}

Runner::~Runner() = default;

void Runner::step(const Batch& batch) {
  impl_->world->fabric().rethrow_error();
  impl_->current = impl_->prepare(batch);
  impl_->rows = batch.extents().row;
  impl_->run(*impl_->current, impl_->cut.works(), [&](Executor& executor, int rank) {
    impl_->sequence ? impl_->sequence->write(impl_->cut, executor, rank)
                    : impl_->cut.write(executor);
  });
  if (impl_->sequence) impl_->sequence->record(batch);
  if (impl_->config.on_step) impl_->config.on_step(*this);
}

TensorView Runner::logits() {
  BRAID_CHECK(impl_->current != nullptr, "no step ran yet");
  return impl_->current->executors[0]->host_output(0, impl_->rows);
}

std::unique_ptr<TokenLoop> Runner::loop(LoopRequest request) {
  const int64_t page_size = impl_->config.cache.page_size;
  request.kv_dtype = impl_->config.cache.kv_dtype;
  const auto n = std::ssize(request.sequences);
  BRAID_CHECK(n > 0 && impl_->rows == n, "a loop of {} sequences, {} rows of logits", n,
              impl_->rows);
  if (impl_->sequence && impl_->config.device.cuda) {
    // A loop on the device passes by step(), which says who has the keys.
    for (LoopSequence& sequence : request.sequences) {
      sequence.hold = [this, hold = std::move(sequence.hold),
                       from = std::ssize(sequence.prompt)](int64_t tokens) {
        const std::span<const int32_t> pages = hold(tokens);
        impl_->sequence->record_first(pages, from);
        return pages;
      };
    }
  }
  const auto step = [&]() -> World::Executors {
    Batch batch(page_size), next(page_size);
    for (const LoopSequence& sequence : request.sequences) {
      const auto cached = std::ssize(sequence.prompt);
      const std::span<const int32_t> pages = sequence.hold(cached + 1);
      batch.add(sequence.prompt.last(1), cached - 1, pages, 1);
      next.add(sequence.prompt.last(1), cached, pages, 1);
    }
    if (impl_->sequence) impl_->sequence->gather(next, impl_->cache, impl_->run_before());
    impl_->looping = impl_->prepare(batch);
    const BoundForward& bound = *impl_->looping;
    const auto ranks =
        static_cast<int>(bound.executors.size());  // of those that divide sequences, 1
    for (int r = 0; r < ranks; ++r) {
      Executor& executor = *bound.executors[static_cast<size_t>(r)];
      impl_->cut.write(executor);
      const auto counts = counts_for(impl_->cut.works(), ranks, r);
      executor.set_counts({counts.begin(), counts.size()});
    }
    return bound.executors;
  };
  if (auto loop = impl_->world->loop(request, impl_->current->executors, step, page_size)) {
    return loop;
  }
  return std::make_unique<HostLoop>(*this, std::move(request), page_size, logits());
}

Runner::Step Runner::last_step(int rank) const {
  BRAID_CHECK(impl_->current != nullptr, "no step ran yet");
  const auto r = static_cast<size_t>(rank);
  const auto& executors = impl_->current->executors;
  if (r >= executors.size()) return {};
  return {executors[r].get(), impl_->times[r]};
}

std::span<const Work> Runner::last_works() const {
  return impl_->cut.works();
}

const ForwardPlanner& Runner::planner() const {
  return impl_->sequence ? impl_->sequence->planner() : *impl_->planner;
}

std::vector<std::string> Runner::explain() const {
  std::vector<std::string> lines;
  if (impl_->choice) lines = impl_->choice->explanations();
  if (impl_->mesh) {
    lines.push_back(fmt::format("sequences over {} ranks: {} attention, {}", impl_->config.tp,
                                to_string(impl_->mesh->mode), to_string(impl_->mesh->degrees)));
  }
  for (const auto& [key, executor] : impl_->cache.keys()) {
    const Schedule& schedule = executor->schedule();
    lines.push_back(fmt::format("{}: {}, {} launches", to_string(key), schedule.strategy,
                                schedule.launches.size()));
    for (const std::string& stage : attention_stages(executor->program(), schedule)) {
      lines.push_back("  " + stage);
    }
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
