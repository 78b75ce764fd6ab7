#include "braid/parallel/lower_divided.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "braid/ops/attention.h"
#include "braid/ops/comm.h"
#include "braid/ops/embedding.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/cut_phases.h"
#include "braid/parallel/attention_parallel.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/parallel/experts/expert_parallel.h"
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
        attention_(logical, plan, division, made_),
        pictures_(logical) {}

  std::vector<RankProgram> run() {
    for (size_t i = 0; i < logical_.values.size(); ++i) {
      const Value& value = logical_.values[i];
      const auto width = plan_.widths.find(value.name);
      if (value.kind == ValueKind::computed) continue;
      made_.define(static_cast<ValueId>(i),
                   made_.add(value.kind, value.name, value.type, given(value), -1,
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
  ValueId mapped(ValueId logical) const { return made_.mapped(logical); }
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
    if (attention_.lower(op, index)) return;
    if (exchanges() && lower_exchange(op, index)) return;
    if (plan_.rows && plan_.rows->pictures && divides_pictures(op) &&
        made_.placed(mapped(pictures_.source(op))).is_shard(0)) {
      return lower_picture(op, index);
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
      made_.define(op.outputs[i], out);
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
    made_.define(op.outputs[0], sum);
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
    made_.define(op.outputs[0], made,
                 combines ? rows_of_rank() : Placement::shard(0, plan_.experts));
    return true;
  }

  // An op over a picture with divided rows of pixels.
  void lower_picture(const Op& op, int index) {
    if (pictures_.postpones(op)) return;
    const Placement x = made_.placed(mapped(pictures_.source(op)));
    std::vector<Builder> builders = made_.begin_builders(op);
    const auto [out, rows] = pictures_.lower(
        builders, plan_.axis, op, [this](ValueId id) { return mapped(id); }, x.parts);
    made_.end_builders(builders, index);
    made_.define(op.outputs[0], out, rows);
  }

  const Program& logical_;
  const LayoutPlan& plan_;
  const AttentionDivision& division_;
  bool cuts_ = false;
  PlacedPrograms made_;
  const Placement& token_parts_;
  AttentionLowering attention_;
  PictureLowering pictures_;
  std::optional<ExpertExchange> exchange_;  // the last mixture's
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
