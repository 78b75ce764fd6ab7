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
                               const std::vector<Range>& experts, const Inputs& in, int64_t room) {
  x_ = in.x;
  const ValueType x = builders[0].type(in.x);
  attrs_ = {.experts = experts,
            .top_k = route.top_k,
            .slots = x.shape[0],
            .room = room,
            .row_bytes = bytes_of(x.dtype, x.shape[1]),
            .axis = x.axis};
  const int P = attrs_.ranks();
  const auto chosen =
      emit(builders, ops::kChoose, "", {in.logits, in.bias}, [&](int) { return Attrs::of(route); });
  const ValueType sums = {x.dtype, {P * attrs_.slots, x.shape[1]}, BatchAxis::none};
  const ValueType arrivals = ops::arrivals_type(P);
  rows_type_ = sums;
  rows_type_.shape[0] = P * room;
  const auto opened =
      open(builders, in.x,
           {rows_type_, ops::chosen_type(attrs_), sums, arrivals, arrivals, arrivals}, {3, 4, 5});
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

std::vector<ValueId> ExpertExchange::open(std::vector<Builder>& builders, ValueId kept,
                                          std::vector<ValueType> opens,
                                          std::vector<int> arrivals) const {
  const ops::SyncAttrs sync = {.axis = "world",
                               .group = all_ranks(attrs_.ranks()),
                               .opens = std::move(opens),
                               .opened_arrivals = std::move(arrivals)};
  return emit(builders, ops::kSync, kSendTag, ops::sync_inputs({kept}),
              [&](int) { return Attrs::of(sync); });
}

void ExpertExchange::await(std::vector<Builder>& builders, ValueId arrivals, ValueId closed,
                           int64_t pushes) const {
  const auto P = static_cast<size_t>(attrs_.ranks());
  const ops::SyncAttrs sync = {.arrivals = std::vector<int64_t>(P, pushes)};
  emit(builders, ops::kSync, kArrivalTag, ops::sync_inputs({closed}, {closed}, arrivals),
       [&](int) { return Attrs::of(sync); });
}

const ExpertExchange::Arrived& ExpertExchange::receive(std::vector<Builder>& builders,
                                                       ValueId read) {
  const auto own = [&](int r) { return of_rank(r); };
  if (read == kNoValue) {
    await(builders, told_, chosen_);
  } else {
    ++attrs_.round;
    const auto opened = open(builders, read, {rows_type_, ops::arrivals_type(attrs_.ranks())}, {1});
    rows_ = opened[0], rows_came_ = opened[1];
  }
  const auto made = emit(builders, ops::kArrange, "", {chosen_}, own);
  emit(builders, ops::kDispatch, kSendTag, {rows_came_, x_, back_, rows_}, own);
  await(builders, rows_came_, rows_);
  weight_ = made[0], place_ = made[1];
  return arrived_ = {.rows = rows_, .token = made[2], .begin = made[3]};
}

namespace {

ValueId multiplied(std::vector<Builder>& builders, const ExpertExchange::Product& product,
                   std::vector<ValueId> inputs) {
  inputs.insert(inputs.end(), product.weights.begin(), product.weights.end());
  return emit(builders, *product.def, "", inputs, [&](int r) { return product.attrs[r]; })[0];
}

ValueId combined(std::vector<Builder>& builders, const std::vector<ValueId>& inputs) {
  return emit(builders, ops::kCombine, "", inputs,
              [](int) { return Attrs::of(ops::CombineAttrs{}); })[0];
}

}  // namespace

void ExpertExchange::receive_gated(std::vector<Builder>& builders) {
  const Arrived& in = receive(builders, h_);
  h_ = multiplied(builders, gated_, {in.rows, in.token, in.begin});
}

ValueId ExpertExchange::gated(std::vector<Builder>& builders, const Product& product) {
  gated_ = product;
  receive_gated(builders);
  return h_;
}

ValueId ExpertExchange::linear(std::vector<Builder>& builders, const Product& product) {
  ValueId y = multiplied(builders, product, {h_, arrived_.begin});
  while (attrs_.round + 1 < rounds()) {
    give_back(builders, y);
    receive_gated(builders);
    y = multiplied(builders, product, {h_, arrived_.begin});
  }
  return y;
}

void ExpertExchange::give_back(std::vector<Builder>& builders, ValueId y) {
  const ValueId z = combined(builders, {weight_, place_, y, kNoValue, kNoValue});
  emit(builders, ops::kReturnRows, kSendTag, {sums_came_, chosen_, z, returned_},
       [&](int r) { return of_rank(r); });
}

ValueId ExpertExchange::finish(std::vector<Builder>& builders, ValueId shared,
                               ValueId shared_gate) {
  await(builders, sums_came_, returned_, rounds());
  return combined(builders, {one_, back_, returned_, shared, shared_gate});
}

}  // namespace braid
