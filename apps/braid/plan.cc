#include <fmt/format.h>

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
    timeline.ranks.push_back({&planned.fused[r], &planned.schedules[r], step.times[r]});
  }
  return timeline;
}

void plan(const PlanOptions& o) {
  check(o);
  for (const auto& input : {o.model, o.config}) {
    if (o.trace && input) require_apart("--trace", *o.trace, *input);
  }
  if (o.trace) require_writable("--trace", *o.trace);
  Planning planning(o);
  std::vector<int32_t> pages(static_cast<size_t>(planning.cache.pages));
  const Batch batch = make_batch(o, pages);
  StrategyChoice::Strategies strategies;
  std::vector<std::string> explanation;
  size_t chosen = 0;
  if (o.schedule == "auto") {
    for (const std::string& name : strategy_names()) strategies.push_back(find_strategy(name));
    StrategyChoice choice(*planning.planner, planning.model, strategies);
    chosen = static_cast<size_t>(choice.choose(batch));
    explanation = choice.explanations();
  } else {
    strategies.push_back(find_strategy(o.schedule));
  }
  const OpScheduler& strategy = *strategies[chosen];
  const ForwardPlanner& planner = *planning.planner;
  BatchCut cut, whole;
  const PlannedForward planned = planner.plan(strategy, batch, cut, &planning.model);
  const PlannedForward sequential =
      planner.plan(*sequential_strategy(), batch, whole, &planning.model);
  const SimulatedStep step =
      simulate(planned.programs(), planned.schedules, cut.works(), planning.model);
  const SimulatedStep baseline =
      simulate(sequential.programs(), sequential.schedules, whole.works(), planning.model);
  const SimulatedStep without = simulate_without_communication(
      sequential.programs(), sequential.schedules, whole.works(), planning.model);
  const CommunicationGain gain{
      .sequential = baseline.seconds, .without = without.seconds, .seconds = step.seconds};
  const double wire_bytes =
      std::accumulate(step.wire_bytes.begin(), step.wire_bytes.end(), 0.0);  // of all ranks
  const Schedule& schedule = planned.schedules[0];
  const MemoryPlan& memory = schedule.memory;
  if (o.json) {
    nlohmann::ordered_json report = {
        {"strategy", strategy.name()},
        {"launches", schedule.launches.size()},
        {"micro_batches", schedule.micro_batches.size()},
        {"arena_bytes", memory.arena_bytes},
        {"live_bytes", memory.live_bytes},
        {"sequential_arena_bytes", sequential.schedules[0].memory.arena_bytes},
        {"hash", fmt::format("{:016x}", hash_of(schedule))},
        {"wire_bytes", std::llround(wire_bytes)},
        {"profile", planning.model.profile().name},
        {"simulated_ms", 1e3 * step.seconds},
        {"sequential_ms", 1e3 * baseline.seconds},
        {"sequential_without_communication_ms", 1e3 * without.seconds},
        {"explanation", explanation}};
    if (const auto share = gain.share()) report["communication_gain"] = *share;
    if (o.launches) report["listing"] = to_string(schedule, planned.fused[0]);
    print(json_text(report, 2) + "\n");
  } else {
    for (const std::string& line : explanation) print(line + "\n");
    if (o.launches) print(to_string(schedule, planned.fused[0]));
    print(fmt::format(
        "{} on {} ranks: {} launches, {} micro-batches, schedule {:016x}\n"
        "activations of a rank: arena {:.2f} MiB ({:.2f} live at most), sequential {:.2f} MiB\n"
        "simulated on {}: {:.3f} ms, sequential {:.3f} ms, without communication {:.3f} ms\n"
        "{}\n",
        strategy.name(), o.tp, schedule.launches.size(), schedule.micro_batches.size(),
        hash_of(schedule), static_cast<double>(memory.arena_bytes) / (1 << 20),
        static_cast<double>(memory.live_bytes) / (1 << 20),
        static_cast<double>(sequential.schedules[0].memory.arena_bytes) / (1 << 20),
        planning.model.profile().name, 1e3 * step.seconds, 1e3 * baseline.seconds,
        1e3 * without.seconds, to_string(gain)));
  }
  if (o.trace) write_trace(*o.trace, timeline_of(planned, step, cut, planning.model));
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
