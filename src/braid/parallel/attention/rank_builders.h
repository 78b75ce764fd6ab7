#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/ops/one_sided.h"
#include "braid/program/builder.h"

namespace braid {

// The Programs of all ranks, with the same ops on the same values: where queries go to the keys,
// ranks meet once, then push rows to each other.
class RankBuilders {
 public:
  explicit RankBuilders(std::span<Builder> builders);

  int ranks() const { return static_cast<int>(builders_.size()); }
  const ValueType& type(ValueId id) const { return builders_[0].type(id); }

  // The same op on every rank, with attributes of the rank's own.
  std::vector<ValueId> emit(const char* scope, const OpDef& def, const std::vector<ValueId>& inputs,
                            const std::function<Attrs(int rank)>& attrs, const char* tag = "");
  ValueId emit1(const char* scope, const OpDef& def, const std::vector<ValueId>& inputs,
                const Attrs& attrs);

  // All ranks meet; the opened values are free on all of them. The first two values are counters.
  std::vector<ValueId> open(ValueId first, const std::vector<ValueType>& types);

  // Ends after the `nth` push to this rank has arrived from each rank with `comes` true.
  void close(const char* scope, ValueId first, ValueId arrivals, int nth,
             const std::vector<ValueId>& closed,
             const std::function<bool(int from, int to)>& comes);

  void push(const char* scope, const std::vector<ValueId>& inputs,
            const std::function<std::vector<ops::Move>(int rank)>& moves);

 private:
  std::span<Builder> builders_;
  std::vector<int> world_;
};

}  // namespace braid
