#include "braid/parallel/attention/rank_builders.h"

#include <numeric>

#include "braid/parallel/attention/lower_attention.h"

namespace braid {

RankBuilders::RankBuilders(std::span<Builder> builders)
    : builders_(builders), world_(builders.size()) {
  std::iota(world_.begin(), world_.end(), 0);
}

std::vector<ValueId> RankBuilders::emit(const char* scope_name, const OpDef& def,
                                        const std::vector<ValueId>& inputs,
                                        const std::function<Attrs(int rank)>& attrs,
                                        const char* tag) {
  std::vector<ValueId> outputs;
  for (int r = 0; r < ranks(); ++r) {
    Builder& b = builders_[r];
    b.mark(tag);
    const auto scope = b.scope(scope_name);
    outputs = b.op(def, attrs(r), inputs);
    b.mark("");
  }
  return outputs;
}

ValueId RankBuilders::emit1(const char* scope, const OpDef& def, const std::vector<ValueId>& inputs,
                            const Attrs& attrs) {
  return emit(scope, def, inputs, [&](int) { return attrs; })[0];
}

std::vector<ValueId> RankBuilders::open(ValueId first, const std::vector<ValueType>& types) {
  return emit(
      "open", ops::kSync, ops::sync_inputs({first}),
      [&](int) {
        return Attrs::of(ops::SyncAttrs{.axis = "world",
                                        .group = world_,
                                        .arrivals = {},
                                        .opens = types,
                                        .opened_arrivals = {0, 1}});
      },
      kLinkTag);
}

void RankBuilders::close(const char* scope, ValueId first, ValueId arrivals, int nth,
                         const std::vector<ValueId>& closed,
                         const std::function<bool(int from, int to)>& comes) {
  emit(
      scope, ops::kSync, ops::sync_inputs({first}, closed, arrivals),
      [&](int to) {
        ops::SyncAttrs attrs{};
        for (int from = 0; from < ranks(); ++from) {
          attrs.arrivals.push_back(comes(from, to) ? nth : 0);
        }
        return Attrs::of(attrs);
      },
      kLinkTag);
}

void RankBuilders::push(const char* scope, const std::vector<ValueId>& inputs,
                        const std::function<std::vector<ops::Move>(int rank)>& moves) {
  emit(
      scope, ops::kPush, inputs,
      [&](int r) { return Attrs::of(ops::MoveAttrs{.rank = r, .moves = moves(r), .told = {}}); },
      kLinkTag);
}

}  // namespace braid
