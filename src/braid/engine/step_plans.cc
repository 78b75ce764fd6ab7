#include "braid/engine/step_plans.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "braid/backend/null/null_backend.h"
#include "braid/base/math.h"
#include "braid/engine/batch_deal.h"
#include "braid/engine/kv_dtype.h"
#include "braid/engine/limits.h"
#include "braid/engine/strategy_choice.h"
#include "braid/kernels/cuda/decode_choice/planned_decode.h"
#include "braid/model/model.h"
#include "braid/model/model_shape.h"
#include "braid/parallel/experts/expert_parallel.h"
#include "braid/parallel/experts/token_weights.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

void check(const StepRequest& r) {
  if (r.model.empty() == r.config.empty()) {
    fail(ErrorCode::kInvalidArgument, "wanted is one of -m and --config");
  }
  require_between("--tokens", r.tokens, 0, kMostTokens);
  require_between("--decodes", r.decodes, 0, 4096);
  require_between("--depth", r.depth, 0, kMostTokens);
  require_between("--tp", r.tp, 1, 1024);
  require_between("--dp", r.dp, 1, 1024 / r.tp);
  require_between("--expert-memory", r.expert_mib, 0, kMostExpertMib);
  if (!r.sp.empty() && (r.tokens < r.tp || r.decodes > 0 || r.tp == 1)) {
    fail(ErrorCode::kInvalidArgument,
         "--sp {} divides one prompt over ranks: wanted are 2 ranks or more, a token for each, and "
         "no --decodes; these are --tp {}, --tokens {}, --decodes {}",
         r.sp, r.tp, r.tokens, r.decodes);
  }
  if (!r.sp.empty() && r.ep > 1) {
    fail(ErrorCode::kUnsupported, "--ep {} does not go with --sp", r.ep);
  }
  if (!r.sp.empty() && r.dp > 1) {
    fail(ErrorCode::kUnsupported, "--dp {} does not go with --sp", r.dp);
  }
  if (!r.sp.empty() && !r.own && r.schedule == "auto") {
    fail(ErrorCode::kInvalidArgument, "--schedule auto does not go with --sp: name a strategy");
  }
  if (r.tokens + r.decodes == 0) {
    fail(ErrorCode::kInvalidArgument, "nothing to plan: --tokens and --decodes are both 0");
  }
  if (!r.decode.empty() && (r.tokens > 0 || r.ep > 1)) {
    fail(ErrorCode::kInvalidArgument,
         "--decode {} forms decode steps: wanted are --tokens 0 and no --ep, and these are "
         "--tokens {}, --ep {}",
         r.decode, r.tokens, r.ep);
  }
}

Topology topology_of(const StepRequest& r) {
  Topology topology{.machines = 1, .devices = r.tp * r.dp};
  if (!r.machines.empty()) topology = parse_topology(r.machines);
  if (topology.ranks() != r.tp * r.dp) {
    fail(ErrorCode::kInvalidArgument, "--machines {} has {} devices, --tp is {}{}", r.machines,
         topology.ranks(), r.tp, r.dp > 1 ? fmt::format(" and --dp {}", r.dp) : "");
  }
  return topology;
}

}  // namespace

double SimulatedPlan::wire_bytes() const {
  return std::accumulate(step.wire_bytes.begin(), step.wire_bytes.end(), 0.0);
}

// A forward pass planned for an absent device.
struct StepPlans::Planning {
  explicit Planning(const StepRequest& r)
      : request((check(r), r)),
        cache{.pages = ceil_div(r.depth + std::max<int64_t>(r.tokens, 1), kPageSize),
              .page_size = kPageSize},
        model(load_profile(r.profile), topology_of(r)) {
    cache.pages_per_sequence = cache.pages;
    if (!r.model.empty()) {
      weights.emplace(r.model);
    } else {
      shape = read_model_shape(r.config);
    }
    cache.activations = model.profile().activations;
    cache.kv_dtype = choose_kv_dtype({}, weights ? weights->default_kv_dtype() : shape.weight_dtype,
                                     cache.activations == DType::bf16, false);
    if (!r.decode.empty()) {
      const cuda::DecodeForm form = cuda::parse_decode(r.decode);
      if (cache.activations != DType::bf16) {
        fail(ErrorCode::kUnsupported, "--decode {}: profile '{}' is of a CPU, wanted is a GPU's",
             r.decode, r.profile);
      }
      decode.emplace(
          backend.catalog(), form,
          cuda::absent_decode_rates(model.profile().name, model.profile().memory_bytes_per_second),
          r.depth + 1, model.topology().machines > 1);
      own = [this](const Program& program, const Op& op, bool grouped) {
        return decode->price(program, op, grouped);
      };
    }
    if (!r.sp.empty()) {
      const int64_t heads = weights ? weights->config().Hq : shape.config.Hq;
      mesh = sequence_mesh(parse_sp_mode(r.sp), model.topology(), heads, {});
    }
    planner.emplace(
        [this](const ForwardShape& s) { return weights ? weights->forward(s) : shape.forward(s); },
        cache,
        std::vector<const KernelCatalog*>(
            static_cast<size_t>(r.tp * r.dp),
            decode ? static_cast<const KernelCatalog*>(&*decode) : &backend.catalog()),
        model.topology(), mesh,
        RankDegrees{.tp = r.tp, .ep = r.ep, .groups = r.dp, .expert_memory = r.expert_mib << 20});
  }

  int64_t token_bytes() const {
    const ForwardShape one = {
        .capacity = {1, 1, 1}, .pages = 1, .page_size = 1, .pages_per_sequence = 1};
    return token_weight_bytes(weights ? weights->forward(one) : shape.forward(one));
  }

  // The request's batch, once for each of the first `groups` groups of ranks.
  Batch batch(std::span<const int32_t> pages, int groups = 1) const {
    Batch batch(kPageSize);
    const std::vector<int32_t> ids(static_cast<size_t>(std::max<int64_t>(request.tokens, 1)), 0);
    for (int group = 0; group < groups; ++group) {
      const auto held = pages.subspan(static_cast<size_t>(group * cache.pages));
      for (int64_t i = 0; i < request.decodes; ++i) {
        batch.add({ids.data(), 1}, request.depth, held, 1, group);
      }
      if (request.tokens > 0) {
        batch.add({ids.data(), static_cast<size_t>(request.tokens)}, request.depth, held, 1, group);
      }
    }
    return batch;
  }

  // The step that DataRanks makes of these batches.
  void plan_groups(SimulatedPlan& made, const Batch& batch) const {
    const OpScheduler& strategy = *made.strategy;
    std::vector<int32_t> pages(static_cast<size_t>(cache.pages * request.dp));
    std::iota(pages.begin(), pages.end(), 0);
    const Batch all = this->batch(pages, request.dp);
    BatchDeal deal(request.dp, request.tp, std::ssize(pages), kPageSize);
    deal.assign(all);
    const BatchInfo info = batch.info(planner->ranks());
    const Ranges ranges = ask(strategy, [&] { return strategy.split(info); });
    deal.cut(ranges, strategy.name());
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    made.cut.assign(batch, ranges, strategy.name());
    made.planned = planner->plan(strategy, layout, deal.key(0), &model);
    made.works.assign(deal.works().begin(), deal.works().begin() + std::ssize(made.cut.works()));
  }

  SimulatedPlan plan(std::shared_ptr<const OpScheduler> strategy, const Batch& batch) const {
    SimulatedPlan made{.strategy = std::move(strategy)};
    if (mesh) {
      const SequenceLayout q = even_zigzag_layout(request.tokens, mesh->ranks(), request.depth);
      const SequenceLayout kv = even_zigzag_layout(request.depth + request.tokens, mesh->ranks());
      made.cut.assign(batch, {{0, request.tokens}}, made.strategy->name());
      made.planned = planner->plan_tokens(*made.strategy, q, kv,
                                          key_for_tokens(q, kv, 1).micro_batches[0], &model);
    } else if (request.dp > 1) {
      plan_groups(made, batch);
    } else {
      made.planned = planner->plan(*made.strategy, batch, made.cut, &model);
    }
    if (made.works.empty()) made.works.assign(made.cut.works().begin(), made.cut.works().end());
    made.step = simulate(made.planned, made.works, model, own);
    return made;
  }

  const StepRequest request;
  NullBackend backend;
  CacheShape cache;
  CostModel model;
  std::optional<Model> weights;
  ModelShape shape;
  std::optional<cuda::PlannedDecode> decode;  // its kernels
  OwnPrices own;                              // of `decode`
  std::optional<SequenceMesh> mesh;           // for ranks that divide tokens
  std::optional<ForwardPlanner> planner;
};

StepPlans::StepPlans(const StepRequest& request)
    : planning_(std::make_unique<const Planning>(request)) {
  const Planning& planning = *planning_;
  const std::vector<int32_t> pages(planning.cache.pages);
  const Batch batch = planning.batch(pages);
  StrategyChoice::Strategies strategies;
  const ProgramKind kind = !request.sp.empty() ? ProgramKind::sequence
                           : request.ep > 1    ? ProgramKind::experts
                                               : ProgramKind::any;
  for (const std::string& name : strategy_names(kind)) {
    strategies.push_back(find_strategy(name));
  }
  if (!request.own && request.schedule == "auto") {
    StrategyChoice choice(*planning.planner, planning.model, strategies, planning.own);
    chosen_ = choice.choose(batch);
    explanation_ = choice.explanations();
  } else {
    const auto named = request.own ? request.own : find_strategy(request.schedule);
    auto at = strategies.end();
    if (!request.own) {
      at = std::ranges::find_if(strategies,
                                [&](const auto& s) { return s->name() == named->name(); });
    }
    chosen_ = at - strategies.begin();
    if (at == strategies.end()) strategies.push_back(named);
  }
  if (!request.compare) {
    strategies = chosen_ == 0 ? StrategyChoice::Strategies{strategies[0]}
                              : StrategyChoice::Strategies{strategies[0], strategies[chosen_]};
    chosen_ = strategies.size() - 1;
  }
  for (auto& strategy : strategies) plans_.push_back(planning.plan(std::move(strategy), batch));
  if (planning.decode && !planning.decode->form()) {
    fail(ErrorCode::kUnsupported,
         "--decode {}: a step of {} sequences of this model has no form: wanted are layers of "
         "attention over a paged cache",
         request.decode, request.decodes);
  }
  without_ = simulate_without_communication(sequential().planned, sequential().works,
                                            planning.model, planning.own)
                 .seconds;
}

StepPlans::~StepPlans() = default;
StepPlans::StepPlans(StepPlans&&) noexcept = default;

CommunicationGain StepPlans::gain_of(const SimulatedPlan& plan) const {
  return {
      .sequential = sequential().step.seconds, .without = without_, .seconds = plan.step.seconds};
}

const Profile& StepPlans::profile() const {
  return planning_->model.profile();
}

int StepPlans::ranks() const {
  return planning_->model.topology().ranks();
}

Timeline StepPlans::timeline() const {
  const SimulatedPlan& plan = chosen();
  Timeline timeline{
      .title = fmt::format("simulated on {}", profile().name), .ranks = {}, .works = plan.works};
  for (size_t r = 0; r < plan.planned.schedules.size(); ++r) {
    timeline.ranks.push_back(
        {&plan.planned.programs[r], &plan.planned.schedules[r], plan.step.times[r]});
  }
  return timeline;
}

std::string StepPlans::listing() const {
  const std::string launches = to_string(chosen().schedule(), chosen().planned.programs[0]);
  return ranks() > 1 ? fmt::format("rank 0 of {}, {}", ranks(), launches) : launches;
}

std::vector<std::string> StepPlans::decode() const {
  return planning_->decode ? planning_->decode->explain() : std::vector<std::string>();
}

std::string StepPlans::experts() const {
  const std::string where = expert_placement(chosen().planned.programs[0], ranks());
  if (where.empty()) return where;
  return fmt::format("{}; a token reads {:.2f} GB of weights", where,
                     1e-9 * static_cast<double>(planning_->token_bytes()));
}

nlohmann::ordered_json StepPlans::json() const {
  const SimulatedPlan& plan = chosen();
  const MemoryPlan& memory = plan.schedule().memory;
  nlohmann::ordered_json report = {
      {"strategy", plan.strategy->name()},
      {"launches", plan.schedule().num_launches()},
      {"micro_batches", plan.schedule().micro_batches.size()},
      {"arena_bytes", memory.arena_bytes},
      {"live_bytes", memory.live_bytes},
      {"sequential_arena_bytes", sequential().schedule().memory.arena_bytes},
      {"hash", fmt::format("{:016x}", hash_of(plan.schedule()))},
      {"wire_bytes", std::llround(plan.wire_bytes())},
      {"profile", profile().name},
      {"simulated_ms", 1e3 * plan.step.seconds},
      {"sequential_ms", 1e3 * sequential().step.seconds},
      {"sequential_without_communication_ms", 1e3 * without_},
      {"explanation", explanation_}};
  if (plan.step.rack_bytes > 0) report["rack_bytes"] = std::llround(plan.step.rack_bytes);
  if (planning_->decode) report["decode"] = decode();
  if (const std::string where = experts(); !where.empty()) report["experts"] = where;
  if (const auto share = gain_of(plan).share()) report["communication_gain"] = *share;
  nlohmann::ordered_json& rows = report["strategies"] = nlohmann::ordered_json::array();
  for (const SimulatedPlan& p : plans_) {
    rows.push_back({{"strategy", p.strategy->name()},
                    {"micro_batches", p.schedule().micro_batches.size()},
                    {"launches", p.schedule().num_launches()},
                    {"simulated_ms", 1e3 * p.step.seconds}});
    if (const auto share = gain_of(p).share()) rows.back()["communication_gain"] = *share;
  }
  return report;
}

}  // namespace braid
