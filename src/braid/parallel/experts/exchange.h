#pragma once

#include "braid/ops/expert_exchange.h"
#include "braid/ops/experts.h"

namespace braid {

// The exchange of expert rows, in place of a route, expert_gated, expert_linear and combine over
// rows divided over ranks. Each rank has a builder; all builders make the same values.
//
//   choose                          on the rank's own tokens
//   sync         kSendTag           opens rows, chosen, returned and three arrivals
//   tell         kSendTag           choices to the ranks of the experts
//   sync         kArrivalTag        a push of every rank has come: closes chosen
//   arrange
//   dispatch     kSendTag           rows to the ranks of the experts
//   sync         kArrivalTag        a push of every rank has come: closes rows
//   expert_gated, expert_linear, combine    z: for each row the sum of the experts here
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
  // Emits choose, the first sync and tell.
  ExpertExchange(std::vector<Builder>& builders, const ops::RouteAttrs& route,
                 const std::vector<Range>& experts, const Inputs& in);

  struct Arrived {
    ValueId rows = kNoValue;   // [P S, C]
    ValueId token = kNoValue;  // i32 [R]
    ValueId begin = kNoValue;  // i32 [H + 1]
  };
  // Emits all up to the sync before expert_gated.
  const Arrived& receive(std::vector<Builder>& builders);
  const Arrived& arrived() const { return arrived_; }

  // Emits all after y [R, C], the results of expert rows; returns [S, C].
  ValueId finish(std::vector<Builder>& builders, ValueId y, ValueId shared, ValueId shared_gate);

 private:
  Attrs of_rank(int rank) const;
  // A sync that waits for every rank's push and closes the pushed values.
  void await(std::vector<Builder>& builders, ValueId arrivals,
             const std::vector<ValueId>& closed) const;

  ops::ExchangeAttrs attrs_;
  ValueId x_ = kNoValue;
  ValueId rows_ = kNoValue, chosen_ = kNoValue, returned_ = kNoValue;
  ValueId told_ = kNoValue, rows_came_ = kNoValue, sums_came_ = kNoValue;  // arrivals
  ValueId one_ = kNoValue, back_ = kNoValue;                               // of tell
  ValueId weight_ = kNoValue, place_ = kNoValue;                           // of arrange
  Arrived arrived_;
};

// Tags of the exchange's ops, for partition rules.
inline constexpr const char* kSendTag = "ep.send";
inline constexpr const char* kArrivalTag = "ep.arrival";

}  // namespace braid
