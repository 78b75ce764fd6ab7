#include "braid/ops/expert_exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

namespace tell_in {
enum Input : size_t { kArrivals, kWeight, kExpert, kChosen, kCount };
}
namespace dispatch_in {
enum Input : size_t { kArrivals, kX, kBack, kRows, kCount };
}
namespace return_in {
enum Input : size_t { kArrivals, kChosen, kZ, kReturned, kCount };
}

const ExchangeAttrs& exchange(const Attrs& attrs) {
  return attrs.as<ExchangeAttrs>();
}

ShardRule no_rule(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 0);
}

std::vector<ValueType> infer_choose(const Attrs& attrs, TypeList in) {
  std::vector<ValueType> out = kRoute.infer(attrs, in);
  out.resize(2);
  return out;
}

Cost cost_choose(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 8);
}

void reference_choose(const OpCall& call) {
  const auto& a = call.attrs<RouteAttrs>();
  const float* bias = call.in[1].data ? call.in[1].as<const float>() : nullptr;
  const size_t E = call.in[0].cols();
  for (int64_t t = 0; t < call.rows(); ++t) {
    choose_experts(a, {call.in[0].row_as<const float>(t), E}, bias, call.out[1].row_as<int32_t>(t),
                   call.out[0].row_as<float>(t));
  }
}

std::vector<ValueType> infer_tell(const Attrs& attrs, TypeList in) {
  using namespace tell_in;
  const ExchangeAttrs& a = exchange(attrs);
  BRAID_CHECK(in.size() == kCount && in[kChosen] == chosen_type(a));
  require_dim("tell", "weight", in[kWeight], 0, a.slots);
  require_dim("tell", "weight", in[kWeight], 1, a.top_k);
  require_dtype("tell", "expert", in[kExpert], DType::i32);
  return {{DType::f32, {a.slots, a.ranks()}, in[kWeight].axis},
          {DType::i32, {a.slots, a.ranks()}, in[kWeight].axis}};
}

std::vector<ValueType> infer_dispatch(const Attrs& attrs, TypeList in) {
  using namespace dispatch_in;
  const ExchangeAttrs& a = exchange(attrs);
  BRAID_CHECK(in.size() == kCount);
  require_rank("dispatch", "x", in[kX], 2);
  require_dim("dispatch", "x", in[kX], 0, a.slots);
  require_dtype("dispatch", "back", in[kBack], DType::i32);
  require_dtype("dispatch", "rows", in[kRows], in[kX].dtype);
  require_dim("dispatch", "rows", in[kRows], 0, a.ranks() * a.room);
  require_dim("dispatch", "rows", in[kRows], 1, in[kX].shape[1]);
  return {};
}

std::vector<ValueType> infer_arrange(const Attrs& attrs, TypeList in) {
  const ExchangeAttrs& a = exchange(attrs);
  const int64_t slots = a.ranks() * a.room;
  BRAID_CHECK(in[0] == chosen_type(a) && 0 < a.room && a.room <= a.slots);
  return {{DType::f32, {slots, a.top_k}},
          {DType::i32, {slots, a.top_k}},
          {DType::i32, {slots * a.top_k}, BatchAxis::expert_row},
          {DType::i32, {a.held().size() + 1}}};
}

std::vector<ValueType> infer_return(const Attrs& attrs, TypeList in) {
  using namespace return_in;
  const ExchangeAttrs& a = exchange(attrs);
  BRAID_CHECK(in.size() == kCount && in[kChosen] == chosen_type(a));
  require_dim("return_rows", "z", in[kZ], 0, a.ranks() * a.room);
  require_dim("return_rows", "returned", in[kReturned], 0, a.ranks() * a.slots);
  require_dim("return_rows", "returned", in[kReturned], 1, in[kZ].shape[1]);
  require_dtype("return_rows", "returned", in[kReturned], in[kZ].dtype);
  return {};
}

// Rows from `tokens` tokens that go to a rank with `held` of E experts, for even choices.
double rows_to(const ExchangeAttrs& a, const Range& held, double tokens) {
  const auto E = static_cast<double>(a.experts.back().end);
  const double away = 1 - static_cast<double>(held.size()) / E;
  return tokens * (1 - std::pow(away, static_cast<double>(a.top_k)));
}

// A transfer to each rank q; `bytes` gives the bytes for n rows that have experts on rank of(q).
template <class Of, class Bytes>
std::vector<Transfer> to_ranks(const Attrs& attrs, const Work& work, Of&& of, Bytes&& bytes) {
  const ExchangeAttrs& a = exchange(attrs);
  std::vector<Transfer> transfers;
  for (int q = 0; q < a.ranks(); ++q) {
    const double n = rows_to(a, a.experts[of(q)], static_cast<double>(work.extents[a.axis]));
    transfers.push_back({.peer = q, .bytes = static_cast<double>(bytes(a, std::lround(n)))});
  }
  return transfers;
}

int64_t round_bytes(const ExchangeAttrs& a, int64_t n) {
  return rows_bytes(a, a.of_round(n).size());
}

std::vector<Transfer> told(const Attrs& attrs, TypeList, const Work& work) {
  return to_ranks(attrs, work, std::identity{}, told_bytes);
}

std::vector<Transfer> dispatched(const Attrs& attrs, TypeList, const Work& work) {
  return to_ranks(attrs, work, std::identity{}, round_bytes);
}

std::vector<Transfer> returned(const Attrs& attrs, TypeList, const Work& work) {
  const int rank = exchange(attrs).rank;
  return to_ranks(
      attrs, work, [&](int) { return rank; }, round_bytes);
}

Cost cost_of(const ExchangeAttrs& a, const std::vector<Transfer>& transfers) {
  Cost cost;
  for (const Transfer& transfer : transfers) {
    cost.bytes += 2 * transfer.bytes;
    if (transfer.peer != a.rank) cost.wire_bytes += transfer.bytes;
  }
  return cost;
}

Cost cost_tell(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  return cost_of(exchange(attrs), told(attrs, in, work));
}

Cost cost_dispatch(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  return cost_of(exchange(attrs), dispatched(attrs, in, work));
}

Cost cost_return(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  return cost_of(exchange(attrs), returned(attrs, in, work));
}

Cost cost_arrange(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 4);
}

void reference_arrange(const OpCall& call) {
  call.part->count.expert_row = arrange_rows(
      call.attrs<ExchangeAttrs>(), call.in[0].as<const int32_t>(), call.out[0].as<float>(),
      call.out[1].as<int32_t>(), call.out[2].as<int32_t>(), call.out[3].as<int32_t>());
}

}  // namespace

ValueType chosen_type(const ExchangeAttrs& a) {
  return {DType::i32, {a.ranks(), 1 + 2 * a.top_k * a.slots}, BatchAxis::none};
}

int64_t expert_row_capacity(const Program& program, int64_t tokens) {
  const bool rounds = std::ranges::any_of(program.ops, [](const Op& op) {
    return op.def == &kArrange && exchange(op.attrs).rounds() > 1;
  });
  return rounds ? program.capacity.expert_row : program.expert_rows(tokens);
}

int64_t told_bytes(const ExchangeAttrs& a, int64_t n) {
  constexpr int64_t kWord = sizeof(int32_t);
  return kWord + n * 2 * a.top_k * kWord;
}

int64_t rows_bytes(const ExchangeAttrs& a, int64_t n) {
  return n * a.row_bytes;
}

int64_t pack_choices(const ExchangeAttrs& a, int q, int64_t tokens, const float* weight,
                     const int32_t* expert, int32_t* told, int32_t* sent, int64_t step) {
  const Range& held = a.experts[q];
  const int64_t k = a.top_k;
  int32_t n = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t* row = told + 1 + 2 * k * n;
    bool goes = false;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = expert[t * k + j];
      const bool there = held.begin <= e && e < held.end;
      row[j] = there ? static_cast<int32_t>(e - held.begin) : -1;
      row[k + j] = std::bit_cast<int32_t>(weight[t * k + j]);
      goes = goes || there;
    }
    sent[t * step] = goes ? n++ : -1;
  }
  told[0] = n;
  return n;
}

int64_t arrange_rows(const ExchangeAttrs& a, const int32_t* chosen, float* weight, int32_t* place,
                     int32_t* token, int32_t* begin) {
  const int64_t k = a.top_k, S = a.slots, H = a.held().size(), line = 1 + 2 * k * S;
  // Calls f(slot, j, expert, word of the weight) for each choice of the round's rows, by slot.
  const auto for_choices = [&](auto&& f) {
    for (int p = 0; p < a.ranks(); ++p) {
      const int32_t* told = chosen + p * line;
      BRAID_CHECK(0 <= told[0] && told[0] <= S, "{} rows of rank {}, room for {}", told[0], p, S);
      const Range rows = a.of_round(told[0]);
      for (int64_t i = rows.begin * k; i < rows.end * k; ++i) {
        const int32_t* row = told + 1 + 2 * k * (i / k);
        const int32_t e = row[i % k];
        BRAID_CHECK(-1 <= e && e < H, "expert {} of {} from rank {}", e, H, p);
        if (e >= 0) f(p * a.room + i / k - rows.begin, i % k, e, row[k + i % k]);
      }
    }
  };
  std::fill_n(begin, H + 1, 0);
  for_choices([&](int64_t, int64_t, int32_t e, int32_t) { ++begin[e + 1]; });
  for (int64_t h = 0; h < H; ++h) begin[h + 1] += begin[h];
  std::array<int32_t, kMaxExperts> next;
  std::copy_n(begin, H, next.begin());
  std::fill_n(place, a.ranks() * a.room * k, -1);
  for_choices([&](int64_t slot, int64_t j, int32_t e, int32_t word) {
    const int32_t row = next[e]++;
    token[row] = static_cast<int32_t>(slot);
    place[slot * k + j] = row;
    weight[slot * k + j] = std::bit_cast<float>(word);
  });
  return begin[H];
}

const OpDef kChoose = {.kind = "choose",
                       .infer = infer_choose,
                       .cost = cost_choose,
                       .shard = no_rule,
                       .reference = reference_choose};

const OpDef kTell = {.kind = "tell",
                     .infer = infer_tell,
                     .cost = cost_tell,
                     .shard = no_rule,
                     .one_sided = true,
                     .remote = RemoteUse::pushes,
                     .transfers = told};

const OpDef kDispatch = {.kind = "dispatch",
                         .infer = infer_dispatch,
                         .cost = cost_dispatch,
                         .shard = no_rule,
                         .one_sided = true,
                         .remote = RemoteUse::pushes,
                         .transfers = dispatched};

const OpDef kArrange = {.kind = "arrange",
                        .infer = infer_arrange,
                        .writes_extent = BatchAxis::expert_row,
                        .cost = cost_arrange,
                        .shard = no_rule,
                        .reference = reference_arrange};

const OpDef kReturnRows = {.kind = "return_rows",
                           .infer = infer_return,
                           .cost = cost_return,
                           .shard = no_rule,
                           .one_sided = true,
                           .remote = RemoteUse::pushes,
                           .transfers = returned};

}  // namespace braid::ops
