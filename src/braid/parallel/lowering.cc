#include "braid/parallel/lowering.h"

#include <algorithm>
#include <map>
#include <utility>

#include "braid/ops/attention.h"
#include "braid/ops/comm.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/input_names.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/cut_phases.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/parallel/experts/expert_parallel.h"
#include "braid/parallel/picture_parallel.h"

namespace braid {
namespace {

// Inputs of expert_gated and of expert_linear.
constexpr size_t kGateWeight = 3, kExpertWeight = 2;

// Lowers for all ranks at once: every rank gets the same ops in the same order.
class Lowering {
 public:
  Lowering(const Program& logical, const LayoutPlan& plan, const AttentionDivision& division)
      : logical_(logical),
        plan_(plan),
        division_(division),
        token_parts_(Placement::shard(0, ops::token_parts(logical.capacity.token, plan.P))) {
    Extents capacity = logical.capacity;
    if ((plan.token_sharded_residual && plan.P > 1) || plan.tokens) {
      capacity.shard = ceil_div(capacity.token, plan.P);
    }
    if (plan.tokens) capacity.expert_row = logical.expert_rows(capacity.shard);
    if (plan.rows) capacity.sequence = 1;
    if (exchanges() && capacity.token > 0) {
      capacity.expert_row =
          plan.ranks() * logical.expert_rows(plan.P > 1 ? capacity.shard : capacity.token);
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
    map_.reserve(logical.values.size());
  }

  std::vector<RankProgram> run() {
    for (const Value& value : logical_.values) {
      const auto width = plan_.widths.find(value.name);
      map_.push_back(value.kind == ValueKind::computed
                         ? kNoValue
                         : add(value.kind, value.name, value.type, given(value), -1,
                               width == plan_.widths.end() ? Placement() : width->second));
    }
    for (size_t i = 0; i < logical_.ops.size(); ++i) lower(static_cast<int>(i));
    for (ValueId output : logical_.outputs) {
      const ValueId whole =
          plan_.rows ? mapped(output) : convert(mapped(output), Placement::replicated(), nullptr);
      for (RankProgram& rank : ranks_) rank.program.outputs.push_back(whole);
    }
    std::vector<Program*> programs;
    for (RankProgram& rank : ranks_) programs.push_back(&rank.program);
    cuts_ = cut_phases(programs, division_.kernels);
    for (const RankProgram& rank : ranks_) verify(rank.program);
    return std::move(ranks_);
  }

  // Whether run() cut a call whose keys may have come in parts.
  bool cuts_parts() const {
    const auto crosses = [](const auto& divided) {
      return divided && divided->mesh.topology.machines > 1;
    };
    return cuts_ && division_.most_parts > 1 && (crosses(plan_.tokens) || crosses(plan_.rows));
  }

 private:
  // Facts of a value common to all ranks.
  struct Common {
    ValueType whole;                // before it is divided
    int producer = -1;              // logical op
    Placement width;                // the second cut of an expert's weights and rows
    ValueId replicated = kNoValue;  // the same value, converted: it is done once
    ValueId token_parts = kNoValue;
  };

  Common& common(ValueId id) { return common_[static_cast<size_t>(id)]; }
  ValueId mapped(ValueId logical) const {
    return logical == kNoValue ? kNoValue : map_[static_cast<size_t>(logical)];
  }
  const Placement& placed(ValueId id) const {
    return ranks_[0].placements[static_cast<size_t>(id)];
  }

  // Where an input, a weight or a state is.
  Placement given(const Value& value) const {
    if (value.kind != ValueKind::input || plan_.rows) return plan_.placement_of(value.name);
    return plan_.tokens && value.type.axis == BatchAxis::token ? token_parts_ : Placement();
  }

  ValueType local_type(const ValueType& whole, const Placement& placement, int rank) const {
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
    // A rank's tokens make its expert rows, as many as its router says.
    const bool sorted = whole.axis == BatchAxis::expert_row && placement.dim == 0;
    local.shape[placement.dim] =
        sorted ? ranks_[0].program.capacity.expert_row : part_of(placement, rank).size();
    return local;
  }

  // Adds a value to every rank with its local shape.
  ValueId add(ValueKind kind, const std::string& name, const ValueType& whole,
              const Placement& placement, int producer, const Placement& width = {}) {
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

  // Of the ranks that share an expert's width, the first adds the bias.
  bool leaves_bias(const OpDef& def, const std::vector<ValueId>& inputs, int rank) const {
    if (&def != &ops::kExpertLinear) return false;
    const Placement& width = common_[static_cast<size_t>(inputs[kExpertWeight])].width;
    return width.is_shard() && part_of(width, rank).begin > 0;
  }

  // Appends an op to every rank.
  void append(const OpDef& def, const Attrs& attrs, TypeList types, const ShardRule& rule,
              const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs,
              const Op& source) {
    for (RankProgram& rank : ranks_) {
      Attrs local = def.localize ? def.localize(attrs, types, rule, rank.rank % plan_.P) : attrs;
      if (leaves_bias(def, inputs, rank.rank)) {
        local = Attrs::of(ops::ExpertLinearAttrs{.bias_elsewhere = true});
      }
      rank.program.ops.push_back(
          {&def, std::move(local), inputs, outputs, source.scope, source.tag});
    }
  }

  bool divides_into_token_parts(ValueId id) const {
    const ValueType& whole = common_[static_cast<size_t>(id)].whole;
    return whole.axis == BatchAxis::token && whole.shape.rank() == 2 &&
           whole.shape[0] == logical_.capacity.token;
  }

  // Columns that several ranks have are gathered from none.
  static bool overlaps(const Placement& placement) {
    const std::vector<Range>& parts = placement.parts;
    for (size_t r = 1; r < parts.size(); ++r) {
      if (parts[r].begin < parts[r - 1].end) return true;
    }
    return false;
  }

  // The value in the wanted placement, by communication if needed. `consumer` is null for an output
  // of the program.
  ValueId convert(ValueId id, const Placement& want, const Op* consumer) {
    if (placed(id) == want) return id;
    // A sum over one rank is whole.
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
    const Op& source = producer >= 0 ? logical_.ops[static_cast<size_t>(producer)] : *consumer;
    append(*def, attrs, {&whole, 1}, {{have}, {want}}, {id}, {made}, source);
    if (to_columns) return made;
    return (to_parts ? common(id).token_parts : common(id).replicated) = made;
  }

  // The op's rule. If a partial sum of tokens is needed whole and the residual stream is divided
  // over tokens: the rule for the sum in parts, if the op takes parts.
  ShardRule rule_for(const Op& op, TypeList types) const {
    std::vector<Placement> placements;
    for (ValueId id : op.inputs) {
      placements.push_back(id == kNoValue ? Placement::replicated() : placed(mapped(id)));
    }
    if (op.def == &ops::kAttention) {
      const auto it = plan_.queries.find(logical_.value(op.inputs[1]).name);
      if (it != plan_.queries.end()) placements[0] = it->second;
    }
    // With divided weights each rank has a part of every expert, or some experts, and sees all
    // tokens.
    if (op.def->writes_extent == BatchAxis::expert_row && !plan_.tokens) {
      std::ranges::fill(placements, Placement::replicated());
      if (!plan_.experts.empty()) placements[0] = Placement::shard(1, plan_.experts);
    }
    ShardRule rule = op.def->shard(op.attrs, types, placements, plan_.P);
    if (!plan_.token_sharded_residual) return rule;
    std::vector<size_t> divided;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!placements[i].is_partial() || !rule.inputs[i].is_replicated()) continue;
      const ValueId id = mapped(op.inputs[i]);
      if (!divides_into_token_parts(id)) continue;
      if (common_[static_cast<size_t>(id)].replicated != kNoValue) continue;  // whole already
      placements[i] = token_parts_;
      divided.push_back(i);
    }
    if (divided.empty()) return rule;
    ShardRule in_parts = op.def->shard(op.attrs, types, placements, plan_.P);
    for (size_t i : divided) {
      if (in_parts.inputs[i] != token_parts_) return rule;
    }
    return in_parts;
  }

  void lower(int index) {
    const Op& op = logical_.ops[static_cast<size_t>(index)];
    if (plan_.tokens && plan_.tokens->apart) {
      if (op.def == &ops::kKvAppend) {
        appended_[op.inputs[3]] = {op.inputs[0], op.inputs[1]};
        return;
      }
      if (op.def == &ops::kAttention) return lower_attention_apart(op, index);
    }
    if (plan_.tokens && op.def == &ops::kAttention) return lower_attention_op(op, index);
    if (exchanges() && lower_exchange(op, index)) return;
    if (plan_.rows && !op.inputs.empty() && placed(mapped(op.inputs[0])).is_shard(0)) {
      const RowSharding& rows = *plan_.rows;
      if (rows.pictures && divides_pictures(op)) return lower_picture(op, index);
      const bool attends = op.def == &ops::kDenseAttention;
      if (attends && rows.mesh.ranks() == plan_.P) return lower_dense_attention(op, index);
    }
    if (plan_.groups > 1 && op.def == &ops::kGatherRows) return lower_gather(op, index);
    if (plan_.tokens && op.def == &ops::kGatherRows) {
      // Each rank picks its own rows; the sum gives all rows.
      Op pick = op;
      pick.def = &ops::kPickRows;
      return lower_by_rule(pick, index);
    }
    lower_by_rule(op, index);
  }

  void lower_by_rule(const Op& op, int index) {
    const std::vector<ValueType> types = logical_.input_types(op);
    const ShardRule rule = rule_for(op, types);
    std::vector<ValueId> inputs, outputs;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      inputs.push_back(
          op.inputs[i] == kNoValue ? kNoValue : convert(mapped(op.inputs[i]), rule.inputs[i], &op));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Value& value = logical_.value(op.outputs[i]);
      const ValueId out =
          add(value.kind, value.name, value.type, rule.outputs[i], index, width_of(op, inputs));
      map_[static_cast<size_t>(op.outputs[i])] = out;
      outputs.push_back(out);
    }
    append(*op.def, op.attrs, types, rule, inputs, outputs, op);
  }

  // The columns of h [R, F] on each rank, where ranks share an expert's width.
  Placement width_of(const Op& op, const std::vector<ValueId>& inputs) const {
    if (op.def != &ops::kExpertGated) return {};
    Placement width = common_[static_cast<size_t>(inputs[kGateWeight])].width;
    width.dim = 1;
    return width;
  }

  // Rows of tokens and experts are both divided over the ranks.
  bool exchanges() const {
    return !plan_.experts.empty() && (plan_.token_sharded_residual || plan_.groups > 1);
  }
  // Where a rank's rows are between the exchanges.
  Placement rows_of_rank() const { return plan_.P > 1 ? token_parts_ : Placement::replicated(); }

  // Rows with wanted logits come from the group that has each.
  void lower_gather(const Op& op, int index) {
    const std::vector<ValueType> types = logical_.input_types(op);
    const ValueType& type = logical_.value(op.outputs[0]).type;
    const ShardRule rule = {std::vector<Placement>(2), std::vector<Placement>(1)};
    const ValueId x = convert(mapped(op.inputs[0]), Placement::replicated(), &op);
    const ValueId picked = add(ValueKind::computed, "", type, {}, index);
    append(ops::kPickRows, op.attrs, types, rule, {x, mapped(op.inputs[1])}, {picked}, op);
    const ValueId sum =
        add(ValueKind::computed, logical_.value(op.outputs[0]).name, type, {}, index);
    append(ops::kAllReduce, Attrs::of(ops::CommAttrs{"dp", plan_.groups}), {&type, 1}, rule,
           {picked}, {sum}, op);
    map_[static_cast<size_t>(op.outputs[0])] = sum;
  }

  // Of a mixture's block: dispatch stands where the route does, so that what is computed between
  // the route and the experts may run beside it. False: another op.
  bool lower_exchange(const Op& op, int index) {
    const bool routes = op.def == &ops::kRoute, combines = op.def == &ops::kCombine;
    if (!routes && op.def != &ops::kExpertGated && op.def != &ops::kExpertLinear && !combines) {
      return false;
    }
    std::vector<ValueId> in;
    for (ValueId id : op.inputs) in.push_back(mapped(id));
    if (routes) {
      const auto gated = std::ranges::find_if(logical_.ops, [&](const Op& other) {
        return other.def == &ops::kExpertGated && other.inputs[1] == op.outputs[2];
      });
      BRAID_CHECK(gated != logical_.ops.end(), "choices at '{}' that nothing takes", op.scope);
      const ExpertExchange::Inputs from = {
          .logits = convert(in[0], rows_of_rank(), &op),
          .bias = in[1],
          .x = convert(mapped(gated->inputs[0]), rows_of_rank(), &*gated)};
      std::vector<Builder> builders = begin_builders(op);
      exchange_.emplace(builders, op.attrs.as<ops::RouteAttrs>(), plan_.experts, from);
      end_builders(builders, index);
      return true;
    }
    if (combines) {
      for (size_t i : {3u, 4u}) {
        if (in[i] != kNoValue) in[i] = convert(in[i], rows_of_rank(), &op);
      }
    }
    std::vector<Builder> builders = begin_builders(op);
    ValueId made = kNoValue;
    if (combines) {
      made = exchange_->finish(builders, in[2], in[3], in[4]);
    } else {
      if (op.def == &ops::kExpertGated) {
        const ExpertExchange::Arrived& rows = exchange_->receive(builders);
        in[0] = rows.rows, in[1] = rows.token;
      }
      in[op.def == &ops::kExpertGated ? 2 : 1] = exchange_->arrived().begin;
      for (size_t r = 0; r < builders.size(); ++r) {
        const bool elsewhere = leaves_bias(*op.def, in, static_cast<int>(r));
        made = builders[r].op1(
            *op.def,
            elsewhere ? Attrs::of(ops::ExpertLinearAttrs{.bias_elsewhere = true}) : op.attrs, in);
      }
    }
    end_builders(builders, index);
    define(op.outputs[0], made, combines ? rows_of_rank() : Placement::shard(0, plan_.experts));
    return true;
  }

  // Attention over divided tokens: this rank keeps a part of all keys.
  void lower_attention_op(const Op& op, int index) {
    SequenceAttention attention = sequence_attention(op);
    if (plan_.tokens->levels && attention.window_left < 0) {
      const KeyLevels& levels = *plan_.tokens->levels;
      const bool scores = levels.importance == Importance::previous && attends_after(index);
      if (between_attentions(index)) {
        attention.levels = levels;
      } else if (scores) {
        attention.levels = keeping_all(levels);  // dense: the next wants its scores
      }
    }
    if (kv_slots_ == kNoValue) {
      const ValueType slots{DType::i32, {attention.kv.max_rows()}, BatchAxis::none};
      kv_slots_ = add(ValueKind::input, inputs::kKvSlots, slots, {}, -1);
    }
    std::vector<Builder> builders = begin_builders(op);
    AttentionInputs in;
    for (Builder& b : builders) {
      in.q = b.op1(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{attention.head_dim}),
                   {mapped(op.inputs[0])});
      const auto kv = b.op(ops::kKvRead, Attrs::of(ops::KvReadAttrs{attention.dtype}),
                           {kv_slots_, mapped(op.inputs[1]), mapped(op.inputs[2])});
      in.k = kv[0], in.v = kv[1];
    }
    in.first = mapped(begins_with(op.scope));
    in.scores = scores_;
    const auto [o, joint_o, scores] =
        lower_attention(builders, attention, plan_.tokens->mesh, in, division_);
    if (scores != kNoValue) scores_ = scores;
    ValueId out = kNoValue;
    for (Builder& b : builders) out = b.op1(ops::kToTokens, {}, {o});
    end_builders(builders, index);
    define(op.outputs[0], out, token_parts_);
  }

  // Attention whose queries go to the keys.
  void lower_attention_apart(const Op& op, int index) {
    const KeysApart& apart = *plan_.tokens->apart;
    const int64_t T = plan_.tokens->q.length();
    if (apart_.held_slots == kNoValue) {
      const auto input = [&](const char* name, const Shape& shape) {
        return add(ValueKind::input, name, {DType::i32, shape, BatchAxis::none}, {}, -1);
      };
      apart_ = {.held_slots = input(inputs::kHeldSlots, {apart.sequences, apart.slots}),
                .held_rows = input(inputs::kHeldRows, {T}),
                .held_begin = input(inputs::kHeldBegin, {std::ssize(apart.windows), T}),
                .held_end = input(inputs::kHeldEnd, {T}),
                .new_slots = input(inputs::kNewSlots, {T})};
    }
    const auto kv = appended_.find(op.inputs[1]);
    BRAID_CHECK(kv != appended_.end(), "attention at '{}' to keys that nothing appends", op.scope);
    std::vector<Builder> builders = begin_builders(op);
    const ValueId first = mapped(begins_with(op.scope));
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    if (apart_open_.empty()) {
      apart_open_ =
          open_keys_apart(builders, plan_.tokens->q, first, attrs.head_dim, opened_together(index));
    }
    const ValueId out = lower_keys_apart(builders, plan_.tokens->q, apart, apart_,
                                         {.q = mapped(op.inputs[0]),
                                          .k = mapped(kv->second.first),
                                          .v = mapped(kv->second.second),
                                          .cache = {mapped(op.inputs[1]), mapped(op.inputs[2])},
                                          .first = first,
                                          .attention = attrs},
                                         apart_open_.front());
    apart_open_.erase(apart_open_.begin());
    end_builders(builders, index);
    define(op.outputs[0], out, token_parts_);
  }

  // The types of q and k of this attention and those behind it, as far as their buffers stay small:
  // a meeting opens them all, so that ranks meet once a step and not in each layer.
  std::vector<std::pair<ValueType, ValueType>> opened_together(int index) const {
    constexpr int64_t kMostBytes = 32 << 20;
    std::vector<std::pair<ValueType, ValueType>> types;
    int64_t bytes = 0;
    const int64_t head_dim =
        logical_.ops[static_cast<size_t>(index)].attrs.as<ops::AttentionAttrs>().head_dim;
    for (size_t i = static_cast<size_t>(index); i < logical_.ops.size(); ++i) {
      const Op& op = logical_.ops[i];
      if (!attends(op)) continue;
      if (op.attrs.as<ops::AttentionAttrs>().head_dim != head_dim) break;
      // Queries and a state of each rank take most of the room.
      const ValueType& q = logical_.value(op.inputs[0]).type;
      bytes += plan_.tokens->q.length() * q.shape[1] * 4 * (plan_.tokens->mesh.ranks() + 1);
      if (!types.empty() && bytes > kMostBytes) break;
      ValueType k = q;
      k.shape[1] = logical_.value(op.inputs[1]).type.shape[2] * head_dim;
      types.emplace_back(q, k);
    }
    return types;
  }

  // Dense attention over divided rows: each rank's rows of all parts become a single value.
  void lower_dense_attention(const Op& op, int index) {
    const auto& a = op.attrs.as<ops::DenseAttentionAttrs>();
    if (a.batch != 1 || op.inputs[a.bias()] != kNoValue || op.inputs[a.key_len()] != kNoValue) {
      fail(ErrorCode::kUnsupported,
           "{} attention at '{}': one sequence without bias and key lengths is wanted",
           to_string(plan_.rows->mesh.mode), op.scope);
    }
    const ValueType& q = logical_.value(op.inputs[0]).type;
    const ValueType& k = logical_.value(op.inputs[a.first_key()]).type;
    const SequenceAttention attention{
        .q_heads = q.shape[1] / a.head_dim,
        .kv_heads = k.shape[1] / a.head_dim,
        .head_dim = a.head_dim,
        .dtype = q.dtype,
        .scale = a.scale,
        .window_right = a.causal ? 0 : -1,
        .q = layout_of(op, std::span(op.inputs).first(a.first_key())),
        .kv = layout_of(op, std::span(op.inputs).subspan(a.first_key(), a.kv_parts))};
    std::vector<Builder> builders = begin_builders(op);
    AttentionInputs in;
    for (Builder& b : builders) {
      const auto join = [&](size_t first, int parts, int64_t rows) {
        std::vector<ValueId> values;
        for (int i = 0; i < parts; ++i) values.push_back(mapped(op.inputs[first + i]));
        return b.op1(ops::kJoinSequence, Attrs::of(ops::JoinSequenceAttrs{a.head_dim, rows}),
                     values);
      };
      in.q = join(0, a.q_parts, attention.q.max_rows());
      in.k = join(a.first_key(), a.kv_parts, attention.kv.max_rows());
      in.v = join(a.first_value(), a.kv_parts, attention.kv.max_rows());
    }
    in.first = mapped(begins_with(op.scope));
    const ValueId o = lower_attention(builders, attention, plan_.rows->mesh, in, division_).o;
    std::vector<ValueId> out;
    for (size_t r = 0; r < builders.size(); ++r) {
      ops::CutSequenceAttrs cut;
      const auto rows = [&](ValueId q) { return placed(mapped(q)).parts[r].size(); };
      for (int i = 0; i < a.q_parts; ++i) cut.rows.push_back(rows(op.inputs[i]));
      out = builders[r].op(ops::kCutSequence, Attrs::of(cut), {o});
    }
    end_builders(builders, index);
    for (size_t i = 0; i < out.size(); ++i) {
      define(op.outputs[i], out[i], placed(mapped(op.inputs[i])));
    }
  }

  // An op over a picture whose rows of pixels are divided.
  void lower_picture(const Op& op, int index) {
    const Placement x = placed(mapped(op.inputs[0]));
    std::vector<ValueId> in;
    for (ValueId id : op.inputs) in.push_back(mapped(id));
    std::vector<Builder> builders = begin_builders(op);
    const ValueId out = lower_picture_op(builders, plan_.axis, op, in, x.parts);
    std::vector<Range> rows;
    int64_t end = 0;
    for (const Builder& b : builders) {
      const int64_t begin = std::exchange(end, end + b.type(out).shape[0]);
      rows.push_back({begin, end});
    }
    end_builders(builders, index);
    define(op.outputs[0], out, Placement::shard(0, std::move(rows)));
  }

  // Layout of these parts' rows, one part after another.
  SequenceLayout layout_of(const Op& op, std::span<const ValueId> parts) const {
    std::vector<Placement> placements;
    for (ValueId id : parts) placements.push_back(placed(mapped(id)));
    if (auto layout = joined_layout(placements)) return *std::move(layout);
    fail(ErrorCode::kUnsupported, "attention at '{}': whole rows beside divided ones", op.scope);
  }

  // The ranks' Programs, to go on with in the op's scope.
  std::vector<Builder> begin_builders(const Op& op) {
    std::vector<Builder> builders;
    for (RankProgram& rank : ranks_) builders.emplace_back(std::move(rank.program), op.scope);
    return builders;
  }

  void end_builders(std::vector<Builder>& builders, int index) {
    for (size_t r = 0; r < builders.size(); ++r) ranks_[r].program = builders[r].release();
    const std::vector<Value>& values = ranks_[0].program.values;
    for (size_t id = common_.size(); id < values.size(); ++id) {
      common_.push_back({values[id].type, index});
      for (RankProgram& rank : ranks_) rank.placements.emplace_back();
    }
  }

  // A logical value is what the ranks have made as `made`.
  void define(ValueId logical, ValueId made, const Placement& placement) {
    map_[static_cast<size_t>(logical)] = made;
    common(made).whole = logical_.value(logical).type;
    for (RankProgram& rank : ranks_) rank.placements[static_cast<size_t>(made)] = placement;
  }

  // What a scope computes from.
  ValueId begins_with(const std::string& scope) const {
    const auto first = std::ranges::find(logical_.ops, scope, &Op::scope);
    return first->inputs[0];
  }

  // Whether attentions come before and after an op of the logical Program.
  static bool attends(const Op& op) { return op.def == &ops::kAttention; }
  bool attends_after(int index) const {
    return std::any_of(logical_.ops.begin() + index + 1, logical_.ops.end(), attends);
  }
  bool between_attentions(int index) const {
    return std::any_of(logical_.ops.begin(), logical_.ops.begin() + index, attends) &&
           attends_after(index);
  }

  SequenceAttention sequence_attention(const Op& op) const {
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    if (attrs.softcap > 0 || attrs.head_offset != 0) {
      fail(ErrorCode::kUnsupported, "{} attention at '{}': scores with a cap of {}, wanted none",
           to_string(plan_.tokens->mesh.mode), op.scope, attrs.softcap);
    }
    const ValueType& q = logical_.value(op.inputs[0]).type;
    return {.q_heads = q.shape[1] / attrs.head_dim,
            .kv_heads = q.shape[1] / attrs.head_dim / attrs.group,
            .head_dim = attrs.head_dim,
            .dtype = q.dtype,
            .scale = attrs.scale,
            .window_left = attrs.window > 0 ? attrs.window - 1 : -1,
            .window_right = 0,
            .q = plan_.tokens->q,
            .kv = plan_.tokens->kv};
  }

  const Program& logical_;
  const LayoutPlan& plan_;
  const AttentionDivision& division_;
  bool cuts_ = false;
  const Placement token_parts_;
  std::vector<RankProgram> ranks_;
  std::vector<Common> common_;  // [values of a rank]
  std::vector<ValueId> map_;    // logical value -> value of every rank
  ValueId kv_slots_ = kNoValue;
  ValueId scores_ = kNoValue;  // of keys, by the attention before
  KeysApartInputs apart_;
  std::optional<ExpertExchange> exchange_;                   // of the last mixture
  std::vector<KeysApartBuffers> apart_open_;                 // of the next attentions
  std::map<ValueId, std::pair<ValueId, ValueId>> appended_;  // k and v, by the cache of the keys
};

}  // namespace

std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan,
                               const std::vector<const KernelCatalog*>& kernels) {
  AttentionDivision division{.kernels = kernels};
  Lowering parts(program, plan, division);
  std::vector<RankProgram> ranks = parts.run();
  if (!parts.cuts_parts()) return ranks;
  division.most_parts = 1;
  return Lowering(program, plan, division).run();
}

}  // namespace braid
