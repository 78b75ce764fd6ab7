#pragma once

#include <span>
#include <vector>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {

// Appends a level attention's ops to the Programs of all ranks.
class LevelOps {
 public:
  explicit LevelOps(std::span<Builder> builders) : builders_(builders) {}

  int ranks() const { return static_cast<int>(builders_.size()); }
  const ValueType& type(ValueId id) const { return builders_[0].type(id); }

  // `attrs(rank)` gives each rank's.
  template <class MakeAttrs>
  std::vector<ValueId> emit(const char* scope_name, const OpDef& def,
                            const std::vector<ValueId>& inputs, const MakeAttrs& attrs,
                            const char* tag = "") {
    std::vector<ValueId> outputs;
    for (int r = 0; r < ranks(); ++r) {
      Builder& b = builders_[r];
      b.mark(tag);
      const auto scope = b.scope(scope_name);
      outputs = b.op(def, Attrs::of(attrs(r)), inputs);
      b.mark("");
    }
    return outputs;
  }

  // All ranks meet: kept values are present and stay, closed values are complete, and buffers with
  // these types are open. A rank alone meets nobody.
  std::vector<ValueId> meet(const char* scope_name, const std::vector<ValueId>& kept,
                            const std::vector<ValueId>& closed,
                            const std::vector<ValueType>& opens) {
    if (ranks() == 1) return buffers(scope_name, kept[0], opens);
    std::vector<int> world;
    for (int r = 0; r < ranks(); ++r) world.push_back(r);
    return emit(
        scope_name, ops::kSync, ops::sync_inputs(kept, closed),
        [&](int) {
          return ops::SyncAttrs{.axis = "world",
                                .group = world,
                                .arrivals = {},
                                .opens = opens,
                                .opened_arrivals = {}};
        },
        kLinkTag);
  }

  // Values [1, rows, heads, D] without contents.
  std::vector<ValueId> buffers(const char* scope_name, ValueId in,
                               const std::vector<ValueType>& types) {
    if (types.empty()) return {};
    return emit(scope_name, ops::kBuffers, {in}, [&](int) { return ops::BuffersAttrs{types}; });
  }

 private:
  std::span<Builder> builders_;
};

}  // namespace braid
