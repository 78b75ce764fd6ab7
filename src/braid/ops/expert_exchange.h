#pragma once

#include "braid/ops/one_sided.h"
#include "braid/ops/route.h"

// The exchange of expert rows between P ranks. Rank r has S rows of tokens and the experts
// `experts[r]`; ranks with the same experts have parts of their width. A row crosses to a rank
// once, however many of the row's experts the rank has, into the slots r B .. r B + B; the sum over
// these experts comes back. A rank with more than B rows for another sends the rows in rounds of B.
// parallel/experts/exchange.h puts the ops together; docs/experts.md has the proof.
namespace braid::ops {

// The choice of kRoute alone: logits f32 [S, E], bias -> weight f32 [S, k], expert i32 [S, k].
extern const OpDef kChoose;  // RouteAttrs

struct ExchangeAttrs {
  int rank = 0;                // the rank, in the world, that has this Program
  std::vector<Range> experts;  // [P]
  int64_t top_k = 1;
  int64_t slots = 0;                  // S, at capacity
  int64_t room = 0;                   // B, 1 .. S: slots for a sender's rows in a round
  int round = 0;                      // of dispatch, arrange and return_rows
  int64_t row_bytes = 0;              // of a token's row
  BatchAxis axis = BatchAxis::shard;  // of a rank's tokens

  int ranks() const { return static_cast<int>(experts.size()); }
  const Range& held() const { return experts.at(rank); }
  int rounds() const { return static_cast<int>(ceil_div(slots, room)); }
  // The round's rows among n rows from a rank to a rank.
  Range of_round(int64_t n) const {
    return {std::min(n, round * room), std::min(n, (round + 1) * room)};
  }
  bool operator==(const ExchangeAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("rank", rank);
    f("experts", fmt::format("{}..{}", held().begin, held().end));
    f("ranks", ranks());
    if (rounds() > 1) f("round", fmt::format("{} of {}", round + 1, rounds()));
  }
};

// A rank's news about arriving rows: for each sender the number n of rows, then for each row
// k experts, counted from the receiver's first (-1: another rank's), and k weights.
ValueType chosen_type(const ExchangeAttrs& attrs);  // i32 [P, 1 + 2 k S]

// Tells the experts' ranks about the coming rows, their experts and weights, then raises this
// rank's counter at the ranks. (arrivals, weight, expert, chosen at the peers)
//   -> one f32 [S, P], back i32 [S, P]: the slot of each rank's sum in `returned`, or -1
extern const OpDef kTell;

// Sends the round's rows of x that kTell announced, then raises this rank's counter at the peers;
// ends when the sources are free. (arrivals, x [S, C], back, rows [P B, C] at the peers) -> ()
extern const OpDef kDispatch;

// Expert rows of the round's rows: chosen -> weight f32 [P B, k], place i32 [P B, k] (-1: none),
// token i32 [R] (a slot), begin i32 [H + 1], R = P B k. Writes the extent of expert_row.
extern const OpDef kArrange;

// Sends the sums z of the round's rows back: (arrivals, chosen, z [P B, C], returned [P S, C] of
// the peers) -> (). Rank r's sums lie in the slots r S .. of a peer, in the order of the peer's
// rows.
extern const OpDef kReturnRows;

// Most expert rows at once in a part of the batch: a round's, or all rows of the part's tokens.
int64_t expert_row_capacity(const Program& program, int64_t tokens);

// Bytes to a rank about n rows, and of n rows or sums.
int64_t told_bytes(const ExchangeAttrs& attrs, int64_t n);
int64_t rows_bytes(const ExchangeAttrs& attrs, int64_t n);

// The work of the CPU kernels. Writes for rank q `told` [1 + 2 k n], and in sent[t * step] the row
// of token t among the n sent rows, or -1. Returns n.
int64_t pack_choices(const ExchangeAttrs& attrs, int q, int64_t tokens, const float* weight,
                     const int32_t* expert, int32_t* told, int32_t* sent, int64_t step);
int64_t arrange_rows(const ExchangeAttrs& attrs, const int32_t* chosen, float* weight,
                     int32_t* place, int32_t* token, int32_t* begin);

}  // namespace braid::ops
