#include "braid/parallel/lowering.h"

#include <map>

#include "braid/ops/comm.h"

namespace braid {
namespace {

// Lowers for all ranks at once, so that every rank gets the same ops in the same order.
class Lowering {
 public:
  Lowering(const Program& logical, const LayoutPlan& plan) : logical_(logical), plan_(plan) {
    for (int r = 0; r < plan.P; ++r) {
      ranks_.push_back({{.name = logical.name, .capacity = logical.capacity}, r, {}});
    }
  }

  std::vector<RankProgram> run() {
    for (const Value& value : logical_.values) {
      if (value.kind == ValueKind::computed) {
        map_.push_back(kNoValue);
        continue;
      }
      const Placement placement =
          value.kind == ValueKind::input ? Placement::replicated() : plan_.placement_of(value.name);
      map_.push_back(add(value, placement));
    }
    for (const Op& op : logical_.ops) lower(op);
    for (ValueId output : logical_.outputs) {
      const ValueId whole = convert(mapped(output), Placement::replicated(), {});
      for (RankProgram& rank : ranks_) rank.program.outputs.push_back(whole);
    }
    for (const RankProgram& rank : ranks_) verify(rank.program);
    return std::move(ranks_);
  }

 private:
  ValueId mapped(ValueId logical) const {
    return logical == kNoValue ? kNoValue : map_[static_cast<size_t>(logical)];
  }
  const Placement& placed(ValueId id) const {
    return ranks_[0].placements[static_cast<size_t>(id)];
  }

  // Adds a value to every rank with its local shape.
  ValueId add(const Value& logical, const Placement& placement) {
    for (RankProgram& rank : ranks_) {
      Value local = logical;
      if (placement.is_shard()) {
        local.type.shape[placement.dim] = placement.parts[static_cast<size_t>(rank.rank)].size();
      }
      rank.program.values.push_back(std::move(local));
      rank.placements.push_back(placement);
    }
    whole_types_.push_back(logical.type);
    return static_cast<ValueId>(whole_types_.size() - 1);
  }

  void append(const OpDef& def, const std::vector<Attrs>& attrs, std::vector<ValueId> inputs,
              std::vector<ValueId> outputs, const Op& source) {
    for (RankProgram& rank : ranks_) {
      rank.program.ops.push_back(
          {&def, attrs[static_cast<size_t>(rank.rank)], inputs, outputs, source.scope, source.tag});
    }
  }

  ValueId convert(ValueId id, const Placement& want, const Op& consumer) {
    const Placement have = placed(id);
    if (have == want) return id;
    const auto key = std::pair(id, to_string(want));
    if (const auto known = converted_.find(key); known != converted_.end()) return known->second;
    const Value& value = ranks_[0].program.value(id);
    if (value.kind != ValueKind::computed || !want.is_replicated()) {
      fail(ErrorCode::kUnsupported, "{} at '{}' needs {} as {}, and it is {}",
           consumer.def ? consumer.def->kind : "output", consumer.scope,
           value.name.empty() ? "a value" : value.name, to_string(want), to_string(have));
    }
    const Attrs attrs = Attrs::of(ops::CommAttrs{plan_.axis, plan_.P, have.dim, have.parts});
    const ValueId whole =
        add({ValueKind::computed, whole_types_[static_cast<size_t>(id)], value.name}, want);
    append(have.is_partial() ? ops::kAllReduce : ops::kAllGather, std::vector(ranks_.size(), attrs),
           {id}, {whole}, producer_.at(id));
    producer_[whole] = producer_.at(id);
    return converted_[key] = whole;
  }

  void lower(const Op& op) {
    std::vector<Placement> placements;
    for (ValueId id : op.inputs) {
      placements.push_back(id == kNoValue ? Placement::replicated() : placed(mapped(id)));
    }
    const std::vector<ValueType> types = logical_.input_types(op);
    const ShardRule rule = op.def->shard(op.attrs, types, placements, plan_.P);
    std::vector<ValueId> inputs, outputs;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      inputs.push_back(
          op.inputs[i] == kNoValue ? kNoValue : convert(mapped(op.inputs[i]), rule.inputs[i], op));
    }
    std::vector<Attrs> attrs;
    for (int r = 0; r < plan_.P; ++r) {
      attrs.push_back(op.def->localize ? op.def->localize(op.attrs, types, rule, r) : op.attrs);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const ValueId out = add(logical_.value(op.outputs[i]), rule.outputs[i]);
      map_[static_cast<size_t>(op.outputs[i])] = out;
      producer_[out] = op;
      outputs.push_back(out);
    }
    append(*op.def, attrs, inputs, outputs, op);
  }

  const Program& logical_;
  const LayoutPlan& plan_;
  std::vector<RankProgram> ranks_;
  std::vector<ValueType> whole_types_;  // [values of a rank] before cutting
  std::vector<ValueId> map_;            // logical value -> value of every rank
  std::map<ValueId, Op> producer_;
  std::map<std::pair<ValueId, std::string>, ValueId> converted_;
};

}  // namespace

std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan) {
  return Lowering(program, plan).run();
}

}  // namespace braid
