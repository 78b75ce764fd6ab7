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
//   in every round:
//     sync         kSendTag         but in the first: the last round's rows are read; opens rows
//                                   and their arrivals anew
//     arrange
//     dispatch     kSendTag         rows to the ranks of the experts
//     sync         kArrivalTag      a push of every rank has come: closes rows
//     expert_gated, expert_linear, combine    z: for each row the sum of the experts here
//     return_rows  kSendTag         z to the rows' ranks
//   sync         kArrivalTag        every rank's push of each round has come: closes returned
//   combine                         the sums of all ranks by rank, then the shared experts
class ExpertExchange {
 public:
  struct Inputs {
    ValueId logits = kNoValue;  // f32 [S, E], rows of this rank
    ValueId bias = kNoValue;    // f32 [E] or absent
    ValueId x = kNoValue;       // [S, C]
  };
  // Emits choose, the first sync and tell. A rank has `room` slots, 1 to S, for the rows of each
  // rank in a round.
  ExpertExchange(std::vector<Builder>& builders, const ops::RouteAttrs& route,
                 const std::vector<Range>& experts, const Inputs& in, int64_t room);
  int rounds() const { return attrs_.rounds(); }

  struct Arrived {
    ValueId rows = kNoValue;   // [P B, C], B slots for each rank
    ValueId token = kNoValue;  // i32 [R]
    ValueId begin = kNoValue;  // i32 [H + 1]
  };
  // Emits the next round up to expert_gated. `read`: expert_gated's result of the last round; none
  // in the first.
  const Arrived& receive(std::vector<Builder>& builders, ValueId read = kNoValue);
  const Arrived& arrived() const { return arrived_; }

  // A product of the experts: of each rank's builder, with the weights and biases behind the rows.
  struct Product {
    const OpDef* def = nullptr;
    std::vector<Attrs> attrs;  // [ranks]
    std::vector<ValueId> weights;
  };
  // Emits the first round up to and with expert_gated.
  ValueId gated(std::vector<Builder>& builders, const Product& product);
  // Emits expert_linear and all further rounds but the last one's rest; returns the last y.
  ValueId linear(std::vector<Builder>& builders, const Product& product);

  // Emits the rest of the round after y [R, C], the results of expert rows.
  void give_back(std::vector<Builder>& builders, ValueId y);
  // Emits all after the last round; returns [S, C].
  ValueId finish(std::vector<Builder>& builders, ValueId shared, ValueId shared_gate);

 private:
  Attrs of_rank(int rank) const;
  // The next round's product with gated_.
  void receive_gated(std::vector<Builder>& builders);
  // A meeting of all ranks, which opens values.
  std::vector<ValueId> open(std::vector<Builder>& builders, ValueId kept,
                            std::vector<ValueType> opens, std::vector<int> arrivals) const;
  // A sync that waits for `pushes` of every rank and closes the pushed value.
  void await(std::vector<Builder>& builders, ValueId arrivals, ValueId closed,
             int64_t pushes = 1) const;

  ops::ExchangeAttrs attrs_;  // of the next round
  ValueType rows_type_;
  ValueId x_ = kNoValue;
  ValueId rows_ = kNoValue, chosen_ = kNoValue, returned_ = kNoValue;
  ValueId told_ = kNoValue, rows_came_ = kNoValue, sums_came_ = kNoValue;  // arrivals
  ValueId one_ = kNoValue, back_ = kNoValue;                               // of tell
  ValueId weight_ = kNoValue, place_ = kNoValue;                           // of arrange
  Arrived arrived_;
  Product gated_;
  ValueId h_ = kNoValue;  // of the last round
};

// Tags of the exchange's ops, for partition rules.
inline constexpr const char* kSendTag = "ep.send";
inline constexpr const char* kArrivalTag = "ep.arrival";

}  // namespace braid
