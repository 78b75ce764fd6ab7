#include "braid/parallel/placed_programs.h"

#include <algorithm>

#include "braid/ops/comm.h"
#include "braid/ops/experts.h"
#include "braid/parallel/experts/expert_parallel.h"

namespace braid {
namespace {

// Inputs of expert_gated and expert_linear.
constexpr size_t kGateWeight = 3, kExpertWeight = 2;

// Columns that several ranks have are gathered from none.
bool overlaps(const Placement& placement) {
  const std::vector<Range>& parts = placement.parts;
  for (size_t r = 1; r < parts.size(); ++r) {
    if (parts[r].begin < parts[r - 1].end) return true;
  }
  return false;
}

}  // namespace

PlacedPrograms::PlacedPrograms(const Program& logical, const LayoutPlan& plan)
    : logical_(logical),
      plan_(plan),
      token_parts_(Placement::shard(0, ops::token_parts(logical.capacity.token, plan.P))),
      map_(logical.values.size(), kNoValue) {
  Extents capacity = logical.capacity;
  if ((plan.token_sharded_residual && plan.P > 1) || plan.tokens) {
    capacity.shard = ceil_div(capacity.token, plan.P);
  }
  if (plan.tokens) capacity.expert_row = logical.expert_rows(capacity.shard);
  if (plan.rows) capacity.sequence = 1;
  if (exchanges_expert_rows(plan) && capacity.token > 0) {
    const int64_t S = plan.P > 1 ? capacity.shard : capacity.token;
    capacity.expert_row = plan.ranks() * logical.expert_rows(exchange_room(plan, logical, S));
  }
  for (int r = 0; r < plan.ranks(); ++r) {
    RankProgram& rank = ranks_.emplace_back();
    rank.rank = r;
    rank.program.name = logical.name;
    rank.program.capacity = capacity;
    if (!plan.experts.empty()) rank.program.expert_ranks = expert_sets(plan);
    rank.program.values.reserve(logical.values.size() + logical.ops.size());
    rank.placements.reserve(logical.values.size() + logical.ops.size());
    rank.program.ops.reserve(logical.ops.size() + logical.ops.size() / 2);
  }
}

ValueType PlacedPrograms::local_type(const ValueType& whole, const Placement& placement,
                                     int rank) const {
  if (!placement.is_shard()) return whole;
  // Tokens are divided by a step's extent, which no capacity knows.
  if (whole.axis == BatchAxis::token && placement.dim == 0) {
    BRAID_CHECK(placement == token_parts_, "{} is divided as {}", to_string(whole),
                to_string(placement));
    ValueType local = whole;
    local.shape[0] = ceil_div(whole.shape[0], plan_.P);
    local.axis = BatchAxis::shard;
    return local;
  }
  ValueType local = whole;
  // A rank's tokens make its expert rows, as many as its router chooses.
  const bool sorted = whole.axis == BatchAxis::expert_row && placement.dim == 0;
  local.shape[placement.dim] =
      sorted ? ranks_[0].program.capacity.expert_row : part_of(placement, rank).size();
  return local;
}

ValueId PlacedPrograms::add(ValueKind kind, const std::string& name, const ValueType& whole,
                            const Placement& placement, int producer, const Placement& width) {
  const auto id = static_cast<ValueId>(common_.size());
  for (RankProgram& rank : ranks_) {
    ValueType local = local_type(whole, placement, rank.rank);
    if (width.is_shard()) {
      local.shape[width.dim] = part_of(width, rank.rank).size();
      rank.widths.emplace(id, width);
    }
    rank.program.values.push_back({kind, local, name});
    rank.placements.push_back(placement);
  }
  common_.push_back({whole, producer, width});
  return id;
}

Placement PlacedPrograms::row_width(const OpDef& def, const std::vector<ValueId>& inputs) const {
  if (&def != &ops::kExpertGated) return {};
  Placement cut = width(inputs[kGateWeight]);
  cut.dim = 1;
  return cut;
}

bool PlacedPrograms::leaves_bias(const OpDef& def, const std::vector<ValueId>& inputs,
                                 int rank) const {
  if (&def != &ops::kExpertLinear) return false;
  const Placement& cut = width(inputs[kExpertWeight]);
  return cut.is_shard() && part_of(cut, rank).begin > 0;
}

void PlacedPrograms::append(const OpDef& def, const Attrs& attrs, TypeList types,
                            const ShardRule& rule, const std::vector<ValueId>& inputs,
                            const std::vector<ValueId>& outputs, const Op& source) {
  for (RankProgram& rank : ranks_) {
    Attrs local = def.localize ? def.localize(attrs, types, rule, rank.rank % plan_.P) : attrs;
    if (leaves_bias(def, inputs, rank.rank)) {
      local = Attrs::of(ops::ExpertLinearAttrs{.bias_elsewhere = true});
    }
    rank.program.ops.push_back({&def, std::move(local), inputs, outputs, source.scope, source.tag});
  }
}

bool PlacedPrograms::divides_into_token_parts(ValueId id) const {
  const ValueType& whole = common_[id].whole;
  return whole.axis == BatchAxis::token && whole.shape.rank() == 2 &&
         whole.shape[0] == logical_.capacity.token;
}

ValueId PlacedPrograms::convert(ValueId id, const Placement& want, const Op* consumer) {
  if (placed(id) == want) return id;
  // A sum over a single rank is whole.
  if (plan_.P == 1 && placed(id).is_partial() && want.is_replicated()) return id;
  const bool to_parts = want == token_parts_ && divides_into_token_parts(id);
  if (want.is_replicated() || to_parts) {
    const ValueId known = to_parts ? common(id).token_parts : common(id).replicated;
    if (known != kNoValue) return known;
  }
  // A sum present in parts already is not made again.
  if (want.is_replicated() && common(id).token_parts != kNoValue) {
    const ValueId whole = convert(common(id).token_parts, want, consumer);
    return common(id).replicated = whole;
  }
  const Placement have = placed(id);
  const Value& value = ranks_[0].program.value(id);
  const bool to_columns = want.is_shard(1) && value.kind == ValueKind::computed;
  if ((to_columns && !have.is_replicated()) || (to_parts && have.is_shard())) {
    return convert(convert(id, Placement::replicated(), consumer), want, consumer);
  }
  const OpDef* def = nullptr;
  // Parts of all ranks are gathered from all groups.
  const bool of_all = have.is_shard() && std::ssize(have.parts) > plan_.P;
  const std::string axis = of_all ? "world" : plan_.axis;
  const int ranks = of_all ? plan_.ranks() : plan_.P;
  Attrs attrs = Attrs::of(ops::CommAttrs{axis, ranks});
  if (to_parts && have.is_replicated()) {
    def = &ops::kTakeShard;
    attrs = Attrs::of(ops::TakeShardAttrs{plan_.axis, plan_.P});
  } else if (to_parts && have.is_partial()) {
    def = &ops::kReduceScatter;
  } else if (to_columns) {
    def = &ops::kTakeShard;
    attrs = Attrs::of(ops::TakeShardAttrs{plan_.axis, plan_.P, 0, want.parts});
  } else if (want.is_replicated() && value.kind == ValueKind::computed && !overlaps(have)) {
    def = have.is_partial() ? &ops::kAllReduce : &ops::kAllGather;
    if (have.is_shard()) {
      attrs = Attrs::of(ops::CommAttrs{axis, ranks, have.dim, have.parts});
    }
  }
  if (def == nullptr) {
    fail(ErrorCode::kUnsupported, "{} at '{}' needs {} as {}, and it is {}",
         consumer ? consumer->def->kind : "output", consumer ? consumer->scope : "",
         value.name.empty() ? "a value" : value.name, to_string(want), to_string(have));
  }
  const int producer = common(id).producer;
  BRAID_CHECK(producer >= 0 || consumer != nullptr, "an input that nothing reads is converted");
  const ValueType whole = common(id).whole;
  const ValueId made = add(ValueKind::computed, "", whole, want, producer);
  const Op& source = producer >= 0 ? logical_.ops[producer] : *consumer;
  append(*def, attrs, {&whole, 1}, {{have}, {want}}, {id}, {made}, source);
  if (to_columns) return made;
  return (to_parts ? common(id).token_parts : common(id).replicated) = made;
}

std::vector<Builder> PlacedPrograms::begin_builders(const Op& op) {
  std::vector<Builder> builders;
  for (RankProgram& rank : ranks_) builders.emplace_back(std::move(rank.program), op.scope);
  return builders;
}

void PlacedPrograms::end_builders(std::vector<Builder>& builders, int producer) {
  for (size_t r = 0; r < builders.size(); ++r) ranks_[r].program = builders[r].release();
  const std::vector<Value>& values = ranks_[0].program.values;
  for (size_t id = common_.size(); id < values.size(); ++id) {
    common_.push_back({values[id].type, producer});
    for (RankProgram& rank : ranks_) rank.placements.emplace_back();
  }
}

void PlacedPrograms::define(ValueId logical, ValueId made, const Placement& placement) {
  define(logical, made);
  common(made).whole = logical_.value(logical).type;
  for (RankProgram& rank : ranks_) rank.placements[made] = placement;
}

}  // namespace braid
