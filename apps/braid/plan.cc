#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "braid/backend/null/null_backend.h"
#include "braid/commands.h"
#include "braid/engine/kv_dtype.h"
#include "braid/engine/strategy_choice.h"
#include "braid/model/model_shape.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/schedule/communication_gain.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/trace.h"
#include "braid/table.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

constexpr int64_t kPageSize = 64;

struct PlanOptions {
  std::optional<std::string> model;
  std::optional<std::string> config;
  std::string schedule = "sequential";
  std::string profile = "h200";
  std::optional<std::string> trace;
  int64_t tokens = 512;  // of one prompt
  int64_t decodes = 0;   // sequences of one token beside it
  int64_t depth = 0;     // keys that each sequence has in the cache before
  int tp = 1;
  std::string machines;
  bool launches = false;
  bool json = false;
};

Batch make_batch(const PlanOptions& o, std::span<const int32_t> pages) {
  Batch batch(kPageSize);
  const std::vector<int32_t> ids(static_cast<size_t>(std::max<int64_t>(o.tokens, 1)), 0);
  for (int64_t i = 0; i < o.decodes; ++i) batch.add({ids.data(), 1}, o.depth, pages, 1);
  if (o.tokens > 0) {
    batch.add({ids.data(), static_cast<size_t>(o.tokens)}, o.depth, pages, 1);
  }
  return batch;
}

void check(const PlanOptions& o) {
  if (o.model.has_value() == o.config.has_value()) {
    fail(ErrorCode::kInvalidArgument, "wanted is one of -m and --config");
  }
  require_between("--tokens", o.tokens, 0, kMostTokens);
  require_between("--decodes", o.decodes, 0, 4096);
  require_between("--depth", o.depth, 0, kMostTokens);
  require_between("--tp", o.tp, 1, 1024);
  if (o.tokens + o.decodes == 0) {
    fail(ErrorCode::kInvalidArgument, "nothing to plan: --tokens and --decodes are both 0");
  }
}

Topology topology_of(const PlanOptions& o) {
  Topology topology{.machines = 1, .devices = o.tp};
  if (!o.machines.empty()) topology = parse_topology(o.machines);
  if (topology.ranks() != o.tp) {
    fail(ErrorCode::kInvalidArgument, "--machines {} has {} devices, --tp is {}", o.machines,
         topology.ranks(), o.tp);
  }
  return topology;
}

// A forward pass as it would be planned on a device that is not there.
struct Planning {
  explicit Planning(const PlanOptions& o)
      : cache{.pages = ceil_div(o.depth + std::max<int64_t>(o.tokens, 1), kPageSize),
              .page_size = kPageSize},
        model(load_profile(o.profile), topology_of(o)) {
    cache.pages_per_sequence = cache.pages;
    if (o.model) {
      weights.emplace(*o.model);
    } else {
      shape = read_model_shape(*o.config);
    }
    cache.activations = model.profile().activations;
    cache.kv_dtype = choose_kv_dtype({}, weights ? weights->default_kv_dtype() : shape.weight_dtype,
                                     cache.activations == DType::bf16, false);
    planner.emplace(
        [this](const ForwardShape& s) { return weights ? weights->forward(s) : shape.forward(s); },
        cache, std::vector<const KernelCatalog*>(static_cast<size_t>(o.tp), &backend.catalog()),
        model.topology());
  }

  NullBackend backend;
  CacheShape cache;
  CostModel model;
  std::optional<Model> weights;
  ModelShape shape;
  std::optional<ForwardPlanner> planner;
};

Timeline timeline_of(const PlannedForward& planned, const SimulatedStep& step, const BatchCut& cut,
                     const CostModel& model) {
  Timeline timeline{.title = fmt::format("simulated on {}", model.profile().name),
                    .ranks = {},
                    .works = {cut.works().begin(), cut.works().end()}};
  for (size_t r = 0; r < planned.schedules.size(); ++r) {
    timeline.ranks.push_back({&planned.programs[r], &planned.schedules[r], step.times[r]});
  }
  return timeline;
}

// A strategy's step: planned for all ranks and simulated.
struct SimulatedPlan {
  std::shared_ptr<const OpScheduler> strategy;
  BatchCut cut;
  PlannedForward planned;
  SimulatedStep step;

  SimulatedPlan(std::shared_ptr<const OpScheduler> s, const Planning& planning, const Batch& batch)
      : strategy(std::move(s)),
        planned(planning.planner->plan(*strategy, batch, cut, &planning.model)),
        step(simulate(planned, cut.works(), planning.model)) {}

  const Schedule& schedule() const { return planned.schedules[0]; }
  double wire_bytes() const {  // of all ranks
    return std::accumulate(step.wire_bytes.begin(), step.wire_bytes.end(), 0.0);
  }
};

// The step of each strategy, `sequential` first.
struct SimulatedPlans {
  std::vector<SimulatedPlan> plans;
  size_t chosen = 0;
  std::vector<std::string> explanation;  // of `auto`
  double without = 0;  // seconds of `sequential` with communication that does nothing

  const SimulatedPlan& sequential() const { return plans[0]; }
  const SimulatedPlan& plan() const { return plans[chosen]; }
  CommunicationGain gain_of(const SimulatedPlan& p) const {
    return {.sequential = sequential().step.seconds, .without = without, .seconds = p.step.seconds};
  }
};

std::string strategies_text(const SimulatedPlans& all) {
  std::vector<std::vector<std::string>> rows;
  for (const SimulatedPlan& plan : all.plans) {
    const std::optional<double> share = all.gain_of(plan).share();
    rows.push_back({std::string(plan.strategy->name()),
                    std::to_string(plan.schedule().micro_batches.size()),
                    std::to_string(plan.schedule().launches.size()),
                    fmt::format("{:.3f}", 1e3 * plan.step.seconds),
                    fmt::format("{:.2f}x", all.sequential().step.seconds / plan.step.seconds),
                    share ? fmt::format("{:.0f}%", 100 * *share) : "-"});
  }
  return table_text({{"strategy"},
                     {"micro-batches", true},
                     {"launches", true},
                     {"ms", true},
                     {"speed-up", true},
                     {"gain", true}},
                    rows);
}

// Says it where a strategy loses; else empty.
std::string loss_text(const SimulatedPlan& plan, const SimulatedPlan& sequential) {
  if (plan.step.seconds <= sequential.step.seconds) return "";
  const size_t parts = plan.schedule().micro_batches.size();
  return fmt::format(
      "{} is slower than sequential here: {} more than it hides; --schedule auto takes a strategy "
      "only where it pays\n",
      plan.strategy->name(),
      parts > 1 ? fmt::format("dividing the batch in {} costs", parts) : "its kernels cost");
}

// The strategies that come with Braid, and behind them the one that was named if it is of a file.
SimulatedPlans simulate_strategies(const PlanOptions& o, const Planning& planning,
                                   const Batch& batch) {
  SimulatedPlans all;
  StrategyChoice::Strategies strategies;
  for (const std::string& name : strategy_names()) strategies.push_back(find_strategy(name));
  if (o.schedule == "auto") {
    StrategyChoice choice(*planning.planner, planning.model, strategies);
    all.chosen = static_cast<size_t>(choice.choose(batch));
    all.explanation = choice.explanations();
  } else {
    const std::shared_ptr<const OpScheduler> named = find_strategy(o.schedule);
    const auto at =
        std::ranges::find_if(strategies, [&](const auto& s) { return s->name() == named->name(); });
    all.chosen = static_cast<size_t>(at - strategies.begin());
    if (at == strategies.end()) strategies.push_back(named);
  }
  for (const auto& strategy : strategies) all.plans.emplace_back(strategy, planning, batch);
  const SimulatedPlan& sequential = all.sequential();
  all.without =
      simulate_without_communication(sequential.planned, sequential.cut.works(), planning.model)
          .seconds;
  return all;
}

nlohmann::ordered_json json_report(const SimulatedPlans& all, const Planning& planning) {
  const SimulatedPlan& plan = all.plan();
  const MemoryPlan& memory = plan.schedule().memory;
  nlohmann::ordered_json report = {
      {"strategy", plan.strategy->name()},
      {"launches", plan.schedule().launches.size()},
      {"micro_batches", plan.schedule().micro_batches.size()},
      {"arena_bytes", memory.arena_bytes},
      {"live_bytes", memory.live_bytes},
      {"sequential_arena_bytes", all.sequential().schedule().memory.arena_bytes},
      {"hash", fmt::format("{:016x}", hash_of(plan.schedule()))},
      {"wire_bytes", std::llround(plan.wire_bytes())},
      {"profile", planning.model.profile().name},
      {"simulated_ms", 1e3 * plan.step.seconds},
      {"sequential_ms", 1e3 * all.sequential().step.seconds},
      {"sequential_without_communication_ms", 1e3 * all.without},
      {"explanation", all.explanation}};
  if (const auto share = all.gain_of(plan).share()) report["communication_gain"] = *share;
  nlohmann::ordered_json& rows = report["strategies"] = nlohmann::ordered_json::array();
  for (const SimulatedPlan& p : all.plans) {
    rows.push_back({{"strategy", p.strategy->name()},
                    {"micro_batches", p.schedule().micro_batches.size()},
                    {"launches", p.schedule().launches.size()},
                    {"simulated_ms", 1e3 * p.step.seconds}});
    if (const auto share = all.gain_of(p).share()) rows.back()["communication_gain"] = *share;
  }
  return report;
}

std::string text_report(const SimulatedPlans& all, const Planning& planning) {
  const SimulatedPlan& plan = all.plan();
  const MemoryPlan& memory = plan.schedule().memory;
  return fmt::format(
      "{}\n{} on {} ranks: {} launches, {} micro-batches, schedule {:016x}\n"
      "activations of a rank: arena {:.2f} MiB ({:.2f} live at most), sequential {:.2f} MiB\n"
      "simulated on {}: {:.3f} ms, sequential {:.3f} ms, without communication {:.3f} ms\n"
      "{}{}\n",
      strategies_text(all), plan.strategy->name(), planning.model.topology().ranks(),
      plan.schedule().launches.size(), plan.schedule().micro_batches.size(),
      hash_of(plan.schedule()), static_cast<double>(memory.arena_bytes) / (1 << 20),
      static_cast<double>(memory.live_bytes) / (1 << 20),
      static_cast<double>(all.sequential().schedule().memory.arena_bytes) / (1 << 20),
      planning.model.profile().name, 1e3 * plan.step.seconds, 1e3 * all.sequential().step.seconds,
      1e3 * all.without, loss_text(plan, all.sequential()), to_string(all.gain_of(plan)));
}

void plan(const PlanOptions& o) {
  check(o);
  for (const auto& input : {o.model, o.config}) {
    if (o.trace && input) require_apart("--trace", *o.trace, *input);
  }
  if (o.trace) require_writable("--trace", *o.trace);
  const Planning planning(o);
  std::vector<int32_t> pages(static_cast<size_t>(planning.cache.pages));
  const SimulatedPlans all = simulate_strategies(o, planning, make_batch(o, pages));
  const SimulatedPlan& plan = all.plan();
  const std::string launches =
      o.launches ? to_string(plan.schedule(), plan.planned.programs[0]) : "";
  if (o.json) {
    nlohmann::ordered_json report = json_report(all, planning);
    if (o.launches) report["listing"] = launches;
    print(json_text(report, 2) + "\n");
  } else {
    print(launches + text_report(all, planning));
  }
  if (o.trace) {
    write_trace(*o.trace, timeline_of(plan.planned, plan.step, plan.cut, planning.model));
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* command = app.add_subcommand("plan", "Shows how a step would run, without running it");
  const auto o = std::make_shared<PlanOptions>();
  const auto model = std::make_shared<ModelOption>();
  model->add_with_argument(*command);
  command->add_option("--config", o->config, "a config.json instead: no weights are needed (bf16)");
  command->add_option("--schedule", o->schedule, "a strategy, its .so file, or auto")
      ->capture_default_str();
  command->add_option("--tokens", o->tokens, "tokens of a prompt in the step")
      ->capture_default_str();
  command->add_option("--decodes", o->decodes, "sequences that decode one token in the step")
      ->capture_default_str();
  command->add_option("--depth", o->depth, "tokens that each sequence has in the KV cache")
      ->capture_default_str();
  command->add_option("--tp,--tensor-parallel-size", o->tp, "ranks of tensor parallelism")
      ->capture_default_str();
  command->add_option("--machines", o->machines,
                      "MACHINESxDEVICES, in place of --tp or of as many");
  command->add_option("--profile", o->profile, "of the device: a name or a .json file")
      ->capture_default_str();
  command->add_flag("--launches", o->launches, "list every launch");
  command->add_option("--trace", o->trace, "write the simulated timeline here (Perfetto)");
  command->add_flag("--json", o->json, "print one JSON object");
  command->footer(
      "Examples:\n"
      "  braid plan --config configs/llama-3-8b.json --tp 8 --tokens 4096 --schedule auto\n"
      "  braid plan -m model.gguf --tp 2 --tokens 64 --schedule overlap --launches\n"
      "  braid plan --config configs/llama-3.3-70b.json --tp 8 --schedule tokenweave --trace "
      "t.json");
  command->callback([o, model, command] {
    model->rest(0);
    if (model->named()) o->model = model->path();
    if (!o->machines.empty() && command->count("--tp") == 0) {
      o->tp = parse_topology(o->machines).ranks();
    }
    plan(*o);
  });
}

}  // namespace braid::app
