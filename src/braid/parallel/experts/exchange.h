#pragma once

#include "braid/ops/expert_exchange.h"
#include "braid/ops/experts.h"

namespace braid {

// The exchange of expert rows, in place of a route, expert_gated, expert_linear and combine over
// rows divided over ranks. Each rank has a builder; all builders make the same values.
//
//   choose                          on the rank's own tokens
//   sync         kSendTag           opens rows, chosen, returned and two arrivals
//   dispatch     kSendTag           rows and choices to the ranks of the experts
//   sync         kArrivalTag        a push of every rank has come: closes rows and chosen
//   arrange, expert_gated, expert_linear, combine    z: for each row the sum of the experts here
//   return_rows  kSendTag           z to the rows' ranks
//   sync         kArrivalTag        a push of every rank has come: closes returned
//   combine                         the sums of all ranks by rank, then the shared experts
class ExpertExchange {
 public:
  struct Inputs {
    ValueId logits = kNoValue;  // f32 [S, E], rows of this rank
    ValueId bias = kNoValue;    // f32 [E] or absent
    ValueId x = kNoValue;       // [S, C]
  };
  // Emits choose, the first sync and dispatch.
  ExpertExchange(std::vector<Builder>& builders, const ops::RouteAttrs& route,
                 const std::vector<Range>& experts, const Inputs& in);

  struct Arrived {
    ValueId rows = kNoValue;   // [P S, C]
    ValueId token = kNoValue;  // i32 [R]
    ValueId begin = kNoValue;  // i32 [H + 1]
  };
  // Emits the second sync and arrange.
  const Arrived& receive(std::vector<Builder>& builders);
  const Arrived& arrived() const { return arrived_; }

  // Emits all after y [R, C], the results of expert rows; returns [S, C].
  ValueId finish(std::vector<Builder>& builders, ValueId y, ValueId shared, ValueId shared_gate);

 private:
  Attrs of_rank(int rank) const;
  // A sync that waits for a push of every rank and closes the pushed values.
  void await(std::vector<Builder>& builders, ValueId arrivals,
             const std::vector<ValueId>& closed) const;

  ops::ExchangeAttrs attrs_;
  ValueId rows_ = kNoValue, chosen_ = kNoValue, returned_ = kNoValue;
  ValueId rows_came_ = kNoValue, sums_came_ = kNoValue;  // arrivals
  ValueId one_ = kNoValue, back_ = kNoValue;             // of dispatch
  ValueId weight_ = kNoValue, place_ = kNoValue;         // of arrange
  Arrived arrived_;
};

// Tags of the exchange's ops, for partition rules.
inline constexpr const char* kSendTag = "ep.send";
inline constexpr const char* kArrivalTag = "ep.arrival";

}  // namespace braid
