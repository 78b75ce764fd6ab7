// Binds the exchange of expert rows to the fabric's verbs, and its local ops.
#include <algorithm>
#include <cstring>

#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/expert_rows.h"
#include "braid/kernels/cpu/rank_kernels.h"
#include "braid/kernels/cpu/register.h"
#include "braid/kernels/cpu/sequence_views.h"
#include "braid/ops/expert_exchange.h"

namespace braid::cpu {
namespace {

using ops::ExchangeAttrs;

int64_t words_told(const ExchangeAttrs& a) {
  return ops::chosen_type(a).shape[1];
}

// A rank's choices as each rank is told about them.
class Packed {
 public:
  explicit Packed(const LaunchArgs& args)
      : call_(args.call), told_(reinterpret_cast<int32_t*>(args.workspace)) {}

  const ExchangeAttrs& attrs() const { return call_.attrs<ExchangeAttrs>(); }
  int64_t tokens() const { return call_.extents()[attrs().axis]; }
  int32_t* told(int q) const { return told_ + q * words_told(attrs()); }

  // Packs the choices for rank q, and writes the place of the returning sums to `one` and `back`.
  void pack(int q) const {
    const ExchangeAttrs& a = attrs();
    const int64_t P = a.ranks();
    auto* back = call_.out[1].as<int32_t>() + q;
    ops::pack_choices(a, q, tokens(), call_.in[1].as<const float>(),
                      call_.in[2].as<const int32_t>(), told(q), back, P);
    for (int64_t t = 0; t < tokens(); ++t) {
      call_.out[0].as<float>()[t * P + q] = 1;
      if (back[t * P] >= 0) back[t * P] += static_cast<int32_t>(q * a.slots);
    }
  }

 private:
  const OpCall& call_;
  int32_t* told_;
};

// Every put of a launch is under way before the first is waited for.
BoundKernel bind_tell(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("tell");
  return [&call, &memory, &endpoint, tag, packed = Packed(args)](const Team& team) {
    if (team.index != 0) return;
    const ExchangeAttrs& a = packed.attrs();
    const auto told = memory.place(call.in[3].data);
    const auto counter = memory.place(call.in[0].row(a.rank)).as<fabric::Signal>();
    const int64_t line = words_told(a) * int64_t{sizeof(int32_t)};
    std::vector<fabric::Transfer> pending;
    for (int i = 1; i <= a.ranks(); ++i) {
      const int q = (a.rank + i) % a.ranks();
      packed.pack(q);
      pending.push_back(endpoint.put_async(told + a.rank * line, q, packed.told(q),
                                           {.row_bytes = ops::told_bytes(a, packed.told(q)[0])},
                                           tag));
      // On the same thread after the put: a reader of the count sees the data.
      endpoint.signal(counter, q, fabric::SignalOp::add, 1, tag);
    }
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

BoundKernel bind_dispatch(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("dispatch");
  return [&call, &memory, &endpoint, tag](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    send_expert_rows(call, call.attrs<ExchangeAttrs>(), endpoint, memory, tag, pending);
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

// Calls f(first token, number) for each run of neighbouring tokens that dispatch sends to q in the
// round, in order.
template <class F>
void for_runs(const OpCall& call, const ExchangeAttrs& a, int q, F&& f) {
  const int64_t P = a.ranks(), tokens = call.extents()[a.axis];
  const auto* back = call.in[2].as<const int32_t>() + q;
  const Range sums = a.of_round(a.slots);
  const auto goes = [&](int64_t t) {
    const int64_t row = back[t * P] - q * a.slots;
    return sums.begin <= row && row < sums.end;
  };
  for (int64_t t = 0; t < tokens;) {
    int64_t end = t;
    while (end < tokens && goes(end)) ++end;
    if (end > t) f(t, end - t);
    t = end + 1;
  }
}

BoundKernel bind_return(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("return_rows");
  return [&call, &memory, &endpoint, tag](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    send_expert_sums(call, call.attrs<ExchangeAttrs>(), endpoint, memory, tag, pending);
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

// Without communication each sender's rows are this rank's own rows for its experts: as much work
// as even choices make.
BoundKernel bind_tell_alone(const LaunchArgs& args) {
  const OpCall& call = args.call;
  return [&call, packed = Packed(args)](const Team& team) {
    if (team.index != 0) return;
    const ExchangeAttrs& a = packed.attrs();
    for (int q = 0; q < a.ranks(); ++q) packed.pack(q);
    const int32_t* own = packed.told(a.rank);
    for (int p = 0; p < a.ranks(); ++p) {
      std::memcpy(call.in[3].row(p), own, ops::told_bytes(a, own[0]));
    }
  };
}

BoundKernel bind_dispatch_alone(const LaunchArgs& args) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    if (team.index != 0) return;
    const auto& a = call.attrs<ExchangeAttrs>();
    for (int p = 0; p < a.ranks(); ++p) {
      int64_t slot = p * a.room;
      for_runs(call, a, a.rank, [&](int64_t t, int64_t count) {
        std::memcpy(call.in[3].row(slot), call.in[1].row(t), count * a.row_bytes);
        slot += count;
      });
    }
  };
}

BoundKernel bind_choose(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  const auto bias = std::make_shared<std::vector<float>>(widen(call.in[1]));
  return [&call, bias](const Team& team) {
    const size_t E = call.in[0].cols();
    const Range mine = team.share(call.rows());
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      ops::choose_experts(call.attrs<ops::RouteAttrs>(), {call.in[0].row_as<const float>(t), E},
                          bias->empty() ? nullptr : bias->data(), call.out[1].row_as<int32_t>(t),
                          call.out[0].row_as<float>(t));
    }
  };
}

BoundKernel bind_arrange(const LaunchArgs& args, Isa) {
  const OpCall& call = args.call;
  return [&call](const Team& team) {
    if (team.index == 0) call.op->def->reference(call);
  };
}

KernelInfo info_of(const Op& op, std::string_view how) {
  const bool packs = op.def == &ops::kTell;
  const int64_t words = packs ? ops::chosen_type(op.attrs.as<ExchangeAttrs>()).shape.elems() : 0;
  return {fmt::format("{}.{}", op.def->kind, how), words * int64_t{sizeof(int32_t)}};
}

void add_exchange(KernelTable& table, const OpDef& def, const char* how,
                  std::function<BoundKernel(const LaunchArgs&)> bind) {
  table.add(def.kind,
            {.info = [how](const Op& op, TypeList, TypeList, int) { return info_of(op, how); },
             .bind = std::move(bind)});
}

}  // namespace

void send_expert_rows(const OpCall& call, const ExchangeAttrs& a, fabric::Endpoint& endpoint,
                      fabric::SymmetricMemory& memory, fabric::Tag tag,
                      std::vector<fabric::Transfer>& pending) {
  const auto rows = memory.place(call.in[3].data);
  const auto counter = memory.place(call.in[0].row(a.rank)).as<fabric::Signal>();
  for (int i = 1; i <= a.ranks(); ++i) {
    const int q = (a.rank + i) % a.ranks();
    int64_t slot = a.rank * a.room;
    for_runs(call, a, q, [&](int64_t t, int64_t count) {
      pending.push_back(endpoint.put_async(rows + slot * a.row_bytes, q, call.in[1].row(t),
                                           {.row_bytes = count * a.row_bytes}, tag));
      slot += count;
    });
    endpoint.signal(counter, q, fabric::SignalOp::add, 1, tag);
  }
}

void send_expert_sums(const OpCall& call, const ExchangeAttrs& a, fabric::Endpoint& endpoint,
                      fabric::SymmetricMemory& memory, fabric::Tag tag,
                      std::vector<fabric::Transfer>& pending) {
  const auto returned = memory.place(call.in[3].data);
  const auto counter = memory.place(call.in[0].row(a.rank)).as<fabric::Signal>();
  for (int i = 1; i <= a.ranks(); ++i) {
    const int q = (a.rank + i) % a.ranks();
    if (const Range sums = a.of_round(*call.in[1].row_as<const int32_t>(q)); !sums.empty()) {
      const int64_t to = a.rank * a.slots + sums.begin;
      pending.push_back(endpoint.put_async(returned + to * a.row_bytes, q,
                                           call.in[2].row(q * a.room),
                                           {.row_bytes = sums.size() * a.row_bytes}, tag));
    }
    endpoint.signal(counter, q, fabric::SignalOp::add, 1, tag);
  }
}

void add_expert_exchange_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kChoose.kind, simple_kernel(ops::kChoose, cap, bind_choose));
  table.add(ops::kArrange.kind, simple_kernel(ops::kArrange, cap, bind_arrange));
}

void add_expert_exchange(KernelTable& table, fabric::Endpoint& endpoint) {
  add_exchange(table, ops::kTell, "fabric",
               [&endpoint](const LaunchArgs& args) { return bind_tell(args, endpoint); });
  add_exchange(table, ops::kDispatch, "fabric",
               [&endpoint](const LaunchArgs& args) { return bind_dispatch(args, endpoint); });
  add_exchange(table, ops::kReturnRows, "fabric",
               [&endpoint](const LaunchArgs& args) { return bind_return(args, endpoint); });
}

void add_unbound_expert_exchange(KernelTable& table) {
  for (const OpDef* def : {&ops::kTell, &ops::kDispatch, &ops::kReturnRows}) {
    add_exchange(table, *def, "fabric", [](const LaunchArgs& args) -> BoundKernel {
      BRAID_CHECK(false, "{} without a fabric", args.call.op->def->kind);
      return {};
    });
  }
}

void drop_expert_exchange(KernelTable& table) {
  add_exchange(table, ops::kTell, "none", bind_tell_alone);
  add_exchange(table, ops::kDispatch, "none", bind_dispatch_alone);
  add_exchange(table, ops::kReturnRows, "none",
               [](const LaunchArgs&) { return [](const Team&) {}; });
}

}  // namespace braid::cpu
