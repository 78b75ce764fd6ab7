// Binds the exchange of expert rows fused with the experts' products.
#include "braid/kernels/cpu/expert_product.h"
#include "braid/kernels/cpu/expert_rows.h"
#include "braid/kernels/cpu/pointwise/combine.h"
#include "braid/kernels/cpu/rank_kernels.h"
#include "braid/kernels/cpu/register.h"
#include "braid/kernels/cpu/sequence_views.h"
#include "braid/ops/expert_tiles.h"
#include "braid/ops/gated_push.h"

namespace braid::cpu {
namespace {

using ops::ExchangeAttrs;

constexpr ExpertOperands kGated = {
    .x = 3, .token = 4, .begin = 5, .weights = 6, .gate = Gate::silu};
constexpr ExpertOperands kLinear = {.x = 2, .begin = 6, .weights = 7};

// In a round a rank sends B tokens, of k experts each.
ExpertRows rows_of(const ExchangeAttrs& a) {
  return {.all = a.room * a.top_k, .of_one = a.room};
}

// The rows of all tiles, by rank.
class Tiles {
 public:
  explicit Tiles(const ExchangeAttrs& a)
      : a_(a),
        experts_(a.held().size()),
        begin_(static_cast<size_t>(a.ranks()) * (experts_ + 1)),
        first_(static_cast<size_t>(a.ranks()) * experts_) {}

  // By one thread, before others read.
  void find(const int32_t* token, const int32_t* rows) {
    for (int p = 0; p < a_.ranks(); ++p) {
      ops::tile_of(a_, p, token, rows, begin_.data() + at(p, experts_ + 1),
                   first_.data() + at(p, experts_));
    }
  }
  const int32_t* begin(int p) const { return begin_.data() + at(p, experts_ + 1); }
  const int32_t* first(int p) const { return first_.data() + at(p, experts_); }

 private:
  static size_t at(int p, size_t each) { return static_cast<size_t>(p) * each; }

  const ExchangeAttrs& a_;
  const size_t experts_;
  std::vector<int32_t> begin_;  // [P, H + 1]
  std::vector<int32_t> first_;  // [P, H]
};

// The ranks in the order of their tiles, from `first` places behind this rank on.
template <class F>
void for_ranks(const ExchangeAttrs& a, int first, F&& f) {
  for (int i = 0; i < a.ranks(); ++i) f((a.rank + first + i) % a.ranks());
}

struct DispatchGated {
  DispatchGated(const LaunchArgs& args, LinearIsa isa, fabric::Endpoint& rank)
      : call(args.call),
        attrs(call.attrs<ops::DispatchGatedAttrs>()),
        a(attrs.exchange),
        endpoint(rank),
        memory(symmetric(args)),
        tag(rank.tag("dispatch_gated")),
        tiles(a),
        product(args, operands(attrs), rows_of(a), isa, args.workspace) {}

  static ExpertOperands operands(const ops::DispatchGatedAttrs& attrs) {
    ExpertOperands at = kGated;
    at.gate = gate_of(attrs.activation);
    return at;
  }

  void operator()(const Team& team) {
    std::vector<fabric::Transfer> pending;
    if (team.index == 0) {
      send_expert_rows(call, a, endpoint, memory, tag, pending);
      tiles.find(call.in[4].as<const int32_t>(), call.in[5].as<const int32_t>());
    }
    for_ranks(a, 0, [&](int p) {
      if (team.index == 0) {
        endpoint.wait(memory.place(call.in[0].row(p)).as<fabric::Signal>(), 1,
                      {.tag = tag, .from = p});
      }
      team.barrier();  // all threads have done the tile before, and may begin this one
      product.run(team, call.out[0].as<float>(), tiles.begin(p), tiles.first(p));
    });
    for (fabric::Transfer& transfer : pending) transfer.wait();
  }

  const OpCall& call;
  const ops::DispatchGatedAttrs& attrs;
  const ExchangeAttrs& a;
  fabric::Endpoint& endpoint;
  fabric::SymmetricMemory& memory;
  const fabric::Tag tag;
  Tiles tiles;
  const ExpertProduct product;
};

// The workspace of linear_return: y [R, C], z [P B, C], and the product's.
struct ReturnSpace {
  explicit ReturnSpace(const ExchangeAttrs& a)
      : y(round_up(a.ranks() * a.room * a.top_k * a.row_bytes, 64)),
        z(round_up(a.ranks() * a.room * a.row_bytes, 64)) {}
  int64_t y, z;  // bytes
};

struct LinearReturn {
  LinearReturn(const LaunchArgs& args, LinearIsa linear, Isa isa, fabric::Endpoint& rank)
      : call(args.call),
        attrs(call.attrs<ops::LinearReturnAttrs>()),
        a(attrs.exchange),
        endpoint(rank),
        memory(symmetric(args)),
        tag(rank.tag("linear_return")),
        isa(isa),
        C(call.in[3].cols()),
        y(reinterpret_cast<float*>(args.workspace)),
        z(reinterpret_cast<float*>(args.workspace + ReturnSpace(a).y)),
        tiles(a),
        product(args, operands(attrs), rows_of(a), linear,
                args.workspace + ReturnSpace(a).y + ReturnSpace(a).z) {}

  static ExpertOperands operands(const ops::LinearReturnAttrs& attrs) {
    ExpertOperands at = kLinear;
    at.biased = !attrs.bias_elsewhere;
    return at;
  }

  void operator()(const Team& team) {
    std::vector<fabric::Transfer> pending;
    if (team.index == 0) {
      tiles.find(call.in[9].as<const int32_t>(), call.in[kLinear.begin].as<const int32_t>());
    }
    const auto returned = memory.place(call.in[3].data);
    const auto counter = memory.place(call.in[0].row(a.rank)).as<fabric::Signal>();
    for_ranks(a, 1, [&](int p) {
      const int64_t slot = p * a.room;
      const Range sums = a.of_round(*call.in[1].row_as<const int32_t>(p));
      team.barrier();
      product.run(team, y, tiles.begin(p), tiles.first(p));
      team.barrier();
      combine({.x = y,
               .weight = call.in[4].as<const float>() + slot * a.top_k,
               .place = call.in[5].as<const int32_t>() + slot * a.top_k,
               .y = z + slot * C,
               .rows = sums.size(),
               .k = a.top_k,
               .cols = C,
               .x_stride = C,
               .shared_stride = C,
               .y_stride = C},
              team, isa);
      team.barrier();
      if (team.index != 0) return;
      if (!sums.empty()) {
        const int64_t to = a.rank * a.slots + sums.begin;
        pending.push_back(endpoint.put_async(returned + to * a.row_bytes, p,
                                             reinterpret_cast<std::byte*>(z + slot * C),
                                             {.row_bytes = sums.size() * a.row_bytes}, tag));
      }
      endpoint.signal(counter, p, fabric::SignalOp::add, 1, tag);
    });
    for (fabric::Transfer& transfer : pending) transfer.wait();
  }

  const OpCall& call;
  const ops::LinearReturnAttrs& attrs;
  const ExchangeAttrs& a;
  fabric::Endpoint& endpoint;
  fabric::SymmetricMemory& memory;
  const fabric::Tag tag;
  const Isa isa;
  const int64_t C;
  float *y, *z;
  Tiles tiles;
  const ExpertProduct product;
};

// The push is under way before the products begin, and ends behind them.
struct GatedPush {
  GatedPush(const LaunchArgs& args, LinearIsa isa, fabric::Endpoint& rank)
      : call(args.call),
        attrs(call.attrs<ops::GatedPushAttrs>()),
        push{call.op, call.in.subspan(ops::kGatedPushFirst), {}, call.axis, args.joined[0]},
        endpoint(rank),
        memory(symmetric(args)),
        tag(rank.tag("gated_push")),
        product(args, operands(attrs), rows_of_all(call.in), isa, args.workspace) {}

  // The experts' rows, at most all tokens for each.
  template <class Operands>
  static ExpertRows rows_of_all(const Operands& in) {
    return {.all = in[1].shape[0], .of_one = in[0].shape[0]};
  }
  static ExpertOperands operands(const ops::GatedPushAttrs& attrs) {
    return {.token = 1, .begin = 2, .weights = 3, .gate = gate_of(attrs.activation)};
  }

  void operator()(const Team& team) {
    std::vector<fabric::Transfer> pending;
    if (team.index == 0) {
      auto* const send = attrs.returns ? send_expert_sums : send_expert_rows;
      send(push, attrs.exchange, endpoint, memory, tag, pending);
    }
    product.run(team, call.out[0].as<float>());
    for (fabric::Transfer& transfer : pending) transfer.wait();
  }

  const OpCall& call;
  const ops::GatedPushAttrs& attrs;
  const OpCall push;
  fabric::Endpoint& endpoint;
  fabric::SymmetricMemory& memory;
  const fabric::Tag tag;
  const ExpertProduct product;
};

// The workspace of a launch.
int64_t gated_space(const Op& op, TypeList in, int threads) {
  const auto& attrs = op.attrs.as<ops::DispatchGatedAttrs>();
  const ExpertProductDesc d(DispatchGated::operands(attrs), in, rows_of(attrs.exchange), threads);
  return expert_linear_scratch_bytes(d.desc);
}
int64_t push_space(const Op& op, TypeList in, int threads) {
  const auto& attrs = op.attrs.as<ops::GatedPushAttrs>();
  const ExpertProductDesc d(GatedPush::operands(attrs), in, GatedPush::rows_of_all(in), threads);
  return expert_linear_scratch_bytes(d.desc);
}
int64_t return_space(const Op& op, TypeList in, int threads) {
  const auto& attrs = op.attrs.as<ops::LinearReturnAttrs>();
  const ReturnSpace space(attrs.exchange);
  const ExpertProductDesc d(LinearReturn::operands(attrs), in, rows_of(attrs.exchange), threads);
  return space.y + space.z + expert_linear_scratch_bytes(d.desc);
}

using Bind = std::function<BoundKernel(const LaunchArgs&)>;

void add_tiles(KernelTable& table, const OpDef& def,
               int64_t (*space)(const Op& op, TypeList in, int threads), const Bind& bind) {
  table.add(
      def.kind,
      {.info =
           [space](const Op& op, TypeList in, TypeList, int threads) {
             return KernelInfo{fmt::format("{}.fabric", op.def->kind), space(op, in, threads)};
           },
       .bind = bind});
}

}  // namespace

void add_expert_tiles(KernelTable& table, fabric::Endpoint& endpoint) {
  const Isa isa = detected_isa();
  add_tiles(table, ops::kDispatchGated, gated_space, [&endpoint, isa](const LaunchArgs& args) {
    const auto bound = std::make_shared<DispatchGated>(args, best_linear_isa(isa), endpoint);
    return [bound](const Team& team) { (*bound)(team); };
  });
  add_tiles(table, ops::kLinearReturn, return_space, [&endpoint, isa](const LaunchArgs& args) {
    const auto bound = std::make_shared<LinearReturn>(args, best_linear_isa(isa), isa, endpoint);
    return [bound](const Team& team) { (*bound)(team); };
  });
  add_tiles(table, ops::kGatedPush, push_space, [&endpoint, isa](const LaunchArgs& args) {
    const auto bound = std::make_shared<GatedPush>(args, best_linear_isa(isa), endpoint);
    return [bound](const Team& team) { (*bound)(team); };
  });
}

void add_unbound_expert_tiles(KernelTable& table) {
  const Bind none = [](const LaunchArgs& args) -> BoundKernel {
    BRAID_CHECK(false, "{} without a fabric", args.call.op->def->kind);
    return {};
  };
  add_tiles(table, ops::kDispatchGated, gated_space, none);
  add_tiles(table, ops::kLinearReturn, return_space, none);
  add_tiles(table, ops::kGatedPush, push_space, none);
}

}  // namespace braid::cpu
