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
#include "braid/parallel/attention/logical_attention.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/parallel/experts/expert_parallel.h"
#include "braid/parallel/lower_divided.h"
#include "braid/parallel/picture_parallel.h"
#include "braid/parallel/placed_programs.h"

namespace braid {
namespace {

// Lowers for all ranks at once: every rank gets the same ops in the same order.
class Lowering {
 public:
  Lowering(const Program& logical, const LayoutPlan& plan, const AttentionDivision& division)
      : logical_(logical),
        plan_(plan),
        division_(division),
        made_(logical, plan),
        token_parts_(made_.token_parts()),
        pictures_(logical) {
    map_.reserve(logical.values.size());
  }

  std::vector<RankProgram> run() {
    for (const Value& value : logical_.values) {
      const auto width = plan_.widths.find(value.name);
      map_.push_back(value.kind == ValueKind::computed
                         ? kNoValue
                         : made_.add(value.kind, value.name, value.type, given(value), -1,
                                     width == plan_.widths.end() ? Placement() : width->second));
    }
    for (size_t i = 0; i < logical_.ops.size(); ++i) lower(static_cast<int>(i));
    for (ValueId output : logical_.outputs) {
      const ValueId whole = plan_.rows
                                ? mapped(output)
                                : made_.convert(mapped(output), Placement::replicated(), nullptr);
      for (RankProgram& rank : made_.ranks()) rank.program.outputs.push_back(whole);
    }
    std::vector<Program*> programs;
    for (RankProgram& rank : made_.ranks()) programs.push_back(&rank.program);
    cuts_ = cut_phases(programs, waits_inside() ? std::span(division_.kernels)
                                                : std::span<const KernelCatalog* const>());
    for (const Program* program : programs) verify(*program);
    return std::move(made_.ranks());
  }

  // Whether run() cut a call whose keys may have come in parts.
  bool cuts_parts() const {
    const auto crosses = [](const auto& divided) {
      return divided && divided->mesh.topology.machines > 1;
    };
    return cuts_ && division_.most_parts > 1 && (crosses(plan_.tokens) || crosses(plan_.rows));
  }

 private:
  // Where thinned keys cross machines, a kernel waiting inside for dense ones kept their last copy
  // from host memory from ending (docs/log/measurements.md): calls are cut there.
  bool waits_inside() const {
    return !plan_.tokens || !plan_.tokens->levels || plan_.tokens->mesh.topology.machines == 1;
  }
  ValueId mapped(ValueId logical) const { return logical == kNoValue ? kNoValue : map_[logical]; }
  // Where an input, a weight or a state is.
  Placement given(const Value& value) const {
    if (value.kind != ValueKind::input || plan_.rows) return plan_.placement_of(value.name);
    return plan_.tokens && value.type.axis == BatchAxis::token ? token_parts_ : Placement();
  }

  // The op's rule. If a partial sum of tokens is needed whole and the residual stream is divided
  // over tokens: the rule for the sum in parts, if the op takes parts.
  ShardRule rule_for(const Op& op, TypeList types) const {
    std::vector<Placement> placements;
    for (ValueId id : op.inputs) {
      placements.push_back(id == kNoValue ? Placement::replicated() : made_.placed(mapped(id)));
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
      if (!made_.divides_into_token_parts(id) || made_.is_known_whole(id)) continue;
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
    const Op& op = logical_.ops[index];
    if (plan_.tokens && plan_.tokens->apart) {
      if (op.def == &ops::kKvAppend) {
        appended_[op.inputs[3]] = {op.inputs[0], op.inputs[1]};
        return;
      }
      if (op.def == &ops::kAttention) return lower_attention_apart(op, index);
    }
    if (plan_.tokens && op.def == &ops::kAttention) return lower_attention_op(op, index);
    if (exchanges() && lower_exchange(op, index)) return;
    if (plan_.rows && !op.inputs.empty() &&
        made_.placed(mapped(pictures_.source(op))).is_shard(0)) {
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
      inputs.push_back(op.inputs[i] == kNoValue
                           ? kNoValue
                           : made_.convert(mapped(op.inputs[i]), rule.inputs[i], &op));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Value& value = logical_.value(op.outputs[i]);
      const ValueId out = made_.add(value.kind, value.name, value.type, rule.outputs[i], index,
                                    made_.row_width(*op.def, inputs));
      map_[op.outputs[i]] = out;
      outputs.push_back(out);
    }
    made_.append(*op.def, op.attrs, types, rule, inputs, outputs, op);
  }

  bool exchanges() const { return exchanges_expert_rows(plan_); }
  // A rank's rows between the exchanges.
  Placement rows_of_rank() const { return plan_.P > 1 ? token_parts_ : Placement::replicated(); }

  // Rows with wanted logits come from the group that has each.
  void lower_gather(const Op& op, int index) {
    const std::vector<ValueType> types = logical_.input_types(op);
    const ValueType& type = logical_.value(op.outputs[0]).type;
    const ShardRule rule = {std::vector<Placement>(2), std::vector<Placement>(1)};
    const ValueId x = made_.convert(mapped(op.inputs[0]), Placement::replicated(), &op);
    const ValueId picked = made_.add(ValueKind::computed, "", type, {}, index);
    made_.append(ops::kPickRows, op.attrs, types, rule, {x, mapped(op.inputs[1])}, {picked}, op);
    const ValueId sum =
        made_.add(ValueKind::computed, logical_.value(op.outputs[0]).name, type, {}, index);
    made_.append(ops::kAllReduce, Attrs::of(ops::CommAttrs{"dp", plan_.groups}), {&type, 1}, rule,
                 {picked}, {sum}, op);
    map_[op.outputs[0]] = sum;
  }

  // For a mixture's block: dispatch stands in the route's place, so ops between route and experts
  // may run beside it. False: another op.
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
          .logits = made_.convert(in[0], rows_of_rank(), &op),
          .bias = in[1],
          .x = made_.convert(mapped(gated->inputs[0]), rows_of_rank(), &*gated)};
      std::vector<Builder> builders = made_.begin_builders(op);
      const auto& route = op.attrs.as<ops::RouteAttrs>();
      const int64_t slots = builders[0].capacity().expert_row / route.top_k;
      exchange_.emplace(builders, route, plan_.experts, from, slots / plan_.ranks());
      made_.end_builders(builders, index);
      return true;
    }
    if (combines) {
      for (size_t i : {3u, 4u}) {
        if (in[i] != kNoValue) in[i] = made_.convert(in[i], rows_of_rank(), &op);
      }
    }
    std::vector<Builder> builders = made_.begin_builders(op);
    ValueId made = kNoValue;
    if (combines) {
      exchange_->give_back(builders, in[2]);
      made = exchange_->finish(builders, in[3], in[4]);
    } else {
      const bool gated = op.def == &ops::kExpertGated;
      ExpertExchange::Product product = {op.def, {}, {in.begin() + (gated ? 3 : 2), in.end()}};
      for (int r = 0; r < plan_.ranks(); ++r) {
        const bool elsewhere = made_.leaves_bias(*op.def, in, r);
        product.attrs.push_back(
            elsewhere ? Attrs::of(ops::ExpertLinearAttrs{.bias_elsewhere = true}) : op.attrs);
      }
      made = gated ? exchange_->gated(builders, product) : exchange_->linear(builders, product);
    }
    made_.end_builders(builders, index);
    define(op.outputs[0], made, combines ? rows_of_rank() : Placement::shard(0, plan_.experts));
    return true;
  }

  // Attention over divided tokens: this rank keeps a part of all keys.
  void lower_attention_op(const Op& op, int index) {
    const SequenceAttention attention = attention_over(logical_, *plan_.tokens, index);
    if (kv_slots_ == kNoValue) {
      const ValueType slots{DType::i32, {attention.kv.max_rows()}, BatchAxis::none};
      kv_slots_ = made_.add(ValueKind::input, inputs::kKvSlots, slots, {}, -1);
    }
    std::vector<Builder> builders = made_.begin_builders(op);
    AttentionInputs in;
    for (Builder& b : builders) {
      in.q = b.op1(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{attention.head_dim}),
                   {mapped(op.inputs[0])});
      const auto kv = b.op(ops::kKvRead, Attrs::of(ops::KvReadAttrs{attention.dtype}),
                           {kv_slots_, mapped(op.inputs[1]), mapped(op.inputs[2])});
      in.k = kv[0], in.v = kv[1];
    }
    in.first = mapped(begins_with(logical_, op.scope));
    in.scores = scores_;
    const auto [o, joint_o, scores] =
        lower_attention(builders, attention, plan_.tokens->mesh, in, division_);
    if (scores != kNoValue) scores_ = scores;
    ValueId out = kNoValue;
    for (Builder& b : builders) out = b.op1(ops::kToTokens, {}, {o});
    made_.end_builders(builders, index);
    define(op.outputs[0], out, token_parts_);
  }

  // Attention with queries that go to the keys.
  void lower_attention_apart(const Op& op, int index) {
    const KeysApart& apart = *plan_.tokens->apart;
    const SequenceLayout guests = guests_of(apart, plan_.tokens->q);
    if (apart_.held_slots == kNoValue) {
      const auto in = [&](const char* name, const Shape& shape) {
        return made_.add(ValueKind::input, name, {DType::i32, shape, BatchAxis::none}, {}, -1);
      };
      const auto held = [&, W = std::ssize(apart.windows)](const inputs::Held& n, int64_t T) {
        return HeldInputs{in(n.rows, {T}), in(n.begin, {W, T}), in(n.end, {T}), in(n.slots, {T})};
      };
      apart_.held_slots = in(inputs::kHeldSlots, {apart.sequences, apart.slots});
      if (guests.length() > 0) apart_.guests = held(inputs::kGuests, guests.length());
      if (apart.own > 0) apart_.own = held(inputs::kOwn, plan_.tokens->q.max_rows());
    }
    const auto kv = appended_.find(op.inputs[1]);
    BRAID_CHECK(kv != appended_.end(), "attention at '{}' to keys that nothing appends", op.scope);
    std::vector<Builder> builders = made_.begin_builders(op);
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    if (apart_open_.empty()) {
      const ValueId first = mapped(begins_with(logical_, op.scope));
      apart_open_ = open_keys_apart(builders, guests, first, attrs.head_dim,
                                    opened_together(logical_, *plan_.tokens, index));
    }
    // Ranks wait for v: a wait for the norm's output would keep the norm apart from its product.
    const ValueId out = lower_keys_apart(builders, guests, apart, apart_,
                                         {.q = mapped(op.inputs[0]),
                                          .k = mapped(kv->second.first),
                                          .v = mapped(kv->second.second),
                                          .cache = {mapped(op.inputs[1]), mapped(op.inputs[2])},
                                          .first = mapped(kv->second.second),
                                          .attention = attrs},
                                         apart_open_.front());
    apart_open_.erase(apart_open_.begin());
    made_.end_builders(builders, index);
    define(op.outputs[0], out, token_parts_);
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
    std::vector<Builder> builders = made_.begin_builders(op);
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
    in.first = mapped(begins_with(logical_, op.scope));
    const ValueId o = lower_attention(builders, attention, plan_.rows->mesh, in, division_).o;
    std::vector<ValueId> out;
    for (size_t r = 0; r < builders.size(); ++r) {
      ops::CutSequenceAttrs cut;
      const auto rows = [&](ValueId q) { return made_.placed(mapped(q)).parts[r].size(); };
      for (int i = 0; i < a.q_parts; ++i) cut.rows.push_back(rows(op.inputs[i]));
      out = builders[r].op(ops::kCutSequence, Attrs::of(cut), {o});
    }
    made_.end_builders(builders, index);
    for (size_t i = 0; i < out.size(); ++i) {
      define(op.outputs[i], out[i], made_.placed(mapped(op.inputs[i])));
    }
  }

  // An op over a picture with divided rows of pixels.
  void lower_picture(const Op& op, int index) {
    if (pictures_.postpones(op)) return;
    const Placement x = made_.placed(mapped(pictures_.source(op)));
    std::vector<Builder> builders = made_.begin_builders(op);
    const auto [out, rows] = pictures_.lower(
        builders, plan_.axis, op, [this](ValueId id) { return mapped(id); }, x.parts);
    made_.end_builders(builders, index);
    define(op.outputs[0], out, rows);
  }

  // Layout of these parts' rows, part after part.
  SequenceLayout layout_of(const Op& op, std::span<const ValueId> parts) const {
    std::vector<Placement> placements;
    for (ValueId id : parts) placements.push_back(made_.placed(mapped(id)));
    if (auto layout = joined_layout(placements)) return *std::move(layout);
    fail(ErrorCode::kUnsupported, "attention at '{}': whole rows beside divided ones", op.scope);
  }

  // Records a logical value as the ranks' value `made`.
  void define(ValueId logical, ValueId made, const Placement& placement) {
    map_[logical] = made;
    made_.place(made, logical_.value(logical).type, placement);
  }

  const Program& logical_;
  const LayoutPlan& plan_;
  const AttentionDivision& division_;
  bool cuts_ = false;
  PlacedPrograms made_;
  const Placement& token_parts_;
  PictureLowering pictures_;
  std::vector<ValueId> map_;  // logical value -> each rank's value
  ValueId kv_slots_ = kNoValue;
  ValueId scores_ = kNoValue;  // keys' scores, by the attention before
  KeysApartInputs apart_;
  std::optional<ExpertExchange> exchange_;                   // the last mixture's
  std::vector<KeysApartBuffers> apart_open_;                 // for the next attentions
  std::map<ValueId, std::pair<ValueId, ValueId>> appended_;  // k and v, by the cache of the keys
};

}  // namespace

std::vector<RankProgram> lower_divided(const Program& program, const LayoutPlan& plan,
                                       AttentionDivision division) {
  Lowering parts(program, plan, division);
  std::vector<RankProgram> ranks = parts.run();
  if (!parts.cuts_parts()) return ranks;
  division.most_parts = 1;
  return Lowering(program, plan, division).run();
}

}  // namespace braid
