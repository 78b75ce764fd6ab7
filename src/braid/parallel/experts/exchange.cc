#include "braid/parallel/experts/exchange.h"

#include <numeric>

namespace braid {
namespace {

// An op with the same inputs on every rank, and the attributes of each.
template <class AttrsOf>
std::vector<ValueId> emit(std::vector<Builder>& builders, const OpDef& def, const char* tag,
                          const std::vector<ValueId>& inputs, AttrsOf&& attrs) {
  std::vector<ValueId> outputs;
  for (size_t r = 0; r < builders.size(); ++r) {
    builders[r].mark(tag);
    std::vector<ValueId> made = builders[r].op(def, attrs(static_cast<int>(r)), inputs);
    builders[r].mark("");
    BRAID_CHECK(r == 0 || made == outputs, "rank {}: values differ from rank 0's", r);
    outputs = std::move(made);
  }
  return outputs;
}

std::vector<int> all_ranks(int P) {
  std::vector<int> ranks(static_cast<size_t>(P));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ExpertExchange::ExpertExchange(std::vector<Builder>& builders, const ops::RouteAttrs& route,
                               const std::vector<Range>& experts, const Inputs& in) {
  x_ = in.x;
  const ValueType x = builders[0].type(in.x);
  attrs_ = {.experts = experts,
            .top_k = route.top_k,
            .slots = x.shape[0],
            .row_bytes = bytes_of(x.dtype, x.shape[1]),
            .axis = x.axis};
  const int P = attrs_.ranks();
  const auto chosen =
      emit(builders, ops::kChoose, "", {in.logits, in.bias}, [&](int) { return Attrs::of(route); });
  const ValueType slots = {x.dtype, {P * attrs_.slots, x.shape[1]}, BatchAxis::none};
  const ops::SyncAttrs open = {
      .axis = "world",
      .group = all_ranks(P),
      .opens = {slots, ops::chosen_type(attrs_), slots, ops::arrivals_type(P),
                ops::arrivals_type(P), ops::arrivals_type(P)},
      .opened_arrivals = {3, 4, 5}};
  const auto opened = emit(builders, ops::kSync, kSendTag, ops::sync_inputs({in.x}),
                           [&](int) { return Attrs::of(open); });
  rows_ = opened[0], chosen_ = opened[1], returned_ = opened[2];
  told_ = opened[3], rows_came_ = opened[4], sums_came_ = opened[5];
  const auto sent = emit(builders, ops::kTell, kSendTag, {told_, chosen[0], chosen[1], chosen_},
                         [&](int r) { return of_rank(r); });
  one_ = sent[0], back_ = sent[1];
}

Attrs ExpertExchange::of_rank(int rank) const {
  ops::ExchangeAttrs attrs = attrs_;
  attrs.rank = rank;
  return Attrs::of(attrs);
}

void ExpertExchange::await(std::vector<Builder>& builders, ValueId arrivals,
                           const std::vector<ValueId>& closed) const {
  const ops::SyncAttrs sync = {.arrivals =
                                   std::vector<int64_t>(static_cast<size_t>(attrs_.ranks()), 1)};
  emit(builders, ops::kSync, kArrivalTag, ops::sync_inputs({closed[0]}, closed, arrivals),
       [&](int) { return Attrs::of(sync); });
}

const ExpertExchange::Arrived& ExpertExchange::receive(std::vector<Builder>& builders) {
  const auto own = [&](int r) { return of_rank(r); };
  await(builders, told_, {chosen_});
  const auto made = emit(builders, ops::kArrange, "", {chosen_}, own);
  emit(builders, ops::kDispatch, kSendTag, {rows_came_, x_, back_, rows_}, own);
  await(builders, rows_came_, {rows_});
  weight_ = made[0], place_ = made[1];
  return arrived_ = {.rows = rows_, .token = made[2], .begin = made[3]};
}

ValueId ExpertExchange::finish(std::vector<Builder>& builders, ValueId y, ValueId shared,
                               ValueId shared_gate) {
  const auto combine = [&](const std::vector<ValueId>& inputs) {
    return emit(builders, ops::kCombine, "", inputs,
                [](int) { return Attrs::of(ops::CombineAttrs{}); })[0];
  };
  const ValueId z = combine({weight_, place_, y, kNoValue, kNoValue});
  emit(builders, ops::kReturnRows, kSendTag, {sums_came_, chosen_, z, returned_},
       [&](int r) { return of_rank(r); });
  await(builders, sums_came_, {returned_});
  return combine({one_, back_, returned_, shared, shared_gate});
}

}  // namespace braid
