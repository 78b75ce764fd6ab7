#pragma once

#include <string>
#include <vector>

#include "braid/parallel/lowering.h"
#include "braid/program/builder.h"

namespace braid {

// Whether rows of tokens and experts are both divided over the ranks.
inline bool exchanges_expert_rows(const LayoutPlan& plan) {
  return !plan.experts.empty() && (plan.token_sharded_residual || plan.groups > 1);
}

// The Programs of all ranks while a logical Program is lowered: the same values and ops on every
// rank, with local shapes, and the placement of each value along the plan's axis. Conversions
// between placements are made once for each value.
class PlacedPrograms {
 public:
  // `logical` and `plan` outlive this.
  PlacedPrograms(const Program& logical, const LayoutPlan& plan);

  // A shard of tokens for each rank, divided as evenly as possible.
  const Placement& token_parts() const { return token_parts_; }
  const Placement& placed(ValueId id) const { return ranks_[0].placements[id]; }
  // Whether a shard of the value may be token_parts().
  bool divides_into_token_parts(ValueId id) const;
  // Whether a conversion has made the value whole on every rank.
  bool is_known_whole(ValueId id) const { return common_[id].replicated != kNoValue; }

  // The columns of expert_gated's h [R, F] on each rank, if ranks share an expert's width; none for
  // other ops.
  Placement row_width(const OpDef& def, const std::vector<ValueId>& inputs) const;
  // Among ranks that share an expert's width, only the first adds an expert_linear's bias.
  bool leaves_bias(const OpDef& def, const std::vector<ValueId>& inputs, int rank) const;

  // Adds a value, made by logical op `producer` (-1: given). `whole`: its type before the division.
  ValueId add(ValueKind kind, const std::string& name, const ValueType& whole,
              const Placement& placement, int producer, const Placement& width = {});
  // The ranks' value of a logical value; kNoValue: of none, or of none defined yet.
  ValueId mapped(ValueId logical) const { return logical == kNoValue ? kNoValue : map_[logical]; }
  // Records a logical value as the ranks' value `made`, from add.
  void define(ValueId logical, ValueId made) { map_[logical] = made; }
  // The same for a value that builders have made, which has no placement yet.
  void define(ValueId logical, ValueId made, const Placement& placement);
  // Appends an op with scope and tag of `source`; `types` are the logical op's input types.
  void append(const OpDef& def, const Attrs& attrs, TypeList types, const ShardRule& rule,
              const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs,
              const Op& source);
  // The value in the wanted placement, by communication if needed. `consumer` is null for an output
  // of the Program. Fails with kUnsupported, naming the consumer, if nothing converts.
  ValueId convert(ValueId id, const Placement& want, const Op* consumer);

  // The ranks' Programs, to extend in the op's scope until end_builders takes them back.
  std::vector<Builder> begin_builders(const Op& op);
  void end_builders(std::vector<Builder>& builders, int producer);

  std::vector<RankProgram>& ranks() { return ranks_; }

 private:
  // A value's facts, equal on all ranks.
  struct Common {
    ValueType whole;                // before the division
    int producer = -1;              // logical op
    Placement width;                // the second cut of an expert's weights and rows
    ValueId replicated = kNoValue;  // the same value, converted once
    ValueId token_parts = kNoValue;
  };
  const Placement& width(ValueId id) const { return common_[id].width; }
  Common& common(ValueId id) { return common_[id]; }
  ValueType local_type(const ValueType& whole, const Placement& placement, int rank) const;

  const Program& logical_;
  const LayoutPlan& plan_;
  const Placement token_parts_;
  std::vector<RankProgram> ranks_;
  std::vector<Common> common_;  // [a rank's values]
  std::vector<ValueId> map_;    // logical value -> each rank's value
};

}  // namespace braid
