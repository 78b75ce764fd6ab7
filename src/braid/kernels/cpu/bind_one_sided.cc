// Binds the one-sided ops over symmetric memory to the fabric's verbs.
#include <atomic>

#include "braid/fabric/collectives/barrier.h"
#include "braid/kernels/cpu/rank_kernels.h"
#include "braid/kernels/cpu/register.h"
#include "braid/kernels/cpu/sequence_views.h"
#include "braid/ops/one_sided.h"

namespace braid::cpu {
namespace {

// A pull's or push's request to the fabric, for a move of a sequence.
struct Transfer {
  int64_t src = 0;  // bytes from the source view's begin
  int64_t dst = 0;
  int64_t src_batch = 0;
  int64_t dst_batch = 0;
  fabric::Block block;
};

Transfer transfer_of(const OpCall& call, const ops::Move& move) {
  const TensorView& src = call.in[move.src];
  const TensorView& dst = call.in[move.dst];
  const Strides s(src), d(dst);
  const int64_t element = bytes_of(src.dtype, 1);
  Transfer t{.src = s.at(0, move.src_row, move.src_head) * element,
             .dst = d.at(0, move.dst_row, move.dst_head) * element,
             .src_batch = s.batch * element,
             .dst_batch = d.batch * element,
             .block = {.row_bytes = move.heads * src.shape[3] * element,
                       .rows = move.rows,
                       .dst_stride = d.row * element,
                       .src_stride = s.row * element}};
  if (t.block.packed()) t.block = {.row_bytes = t.block.bytes()};
  return t;
}

// Every transfer of a launch is under way before the first is waited for.
BoundKernel bind_pull(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("pull");
  return [&call, &memory, &endpoint, tag](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    for (const ops::Move& move : call.attrs<ops::MoveAttrs>().moves) {
      const Transfer t = transfer_of(call, move);
      const auto src = memory.place(call.in[move.src].data);
      std::byte* dst = call.in[move.dst].data;
      for (int64_t b = 0; b < call.extents().sequence; ++b) {
        pending.push_back(endpoint.get_async(dst + t.dst + b * t.dst_batch,
                                             src + (t.src + b * t.src_batch), move.peer, t.block,
                                             tag));
      }
    }
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

fabric::SymPtr<fabric::Signal> counter(fabric::SymmetricMemory& memory, const TensorView& arrivals,
                                       int from) {
  return memory.place(arrivals.row(from)).as<fabric::Signal>();
}

BoundKernel bind_push(const LaunchArgs& args, fabric::Endpoint& endpoint) {
  const OpCall& call = args.call;
  fabric::SymmetricMemory& memory = symmetric(args);
  const fabric::Tag tag = endpoint.tag("push");
  const std::vector<int> peers = call.attrs<ops::MoveAttrs>().peers();
  return [&call, &memory, &endpoint, tag, peers](const Team& team) {
    if (team.index != 0) return;
    std::vector<fabric::Transfer> pending;
    for (const ops::Move& move : call.attrs<ops::MoveAttrs>().moves) {
      const Transfer t = transfer_of(call, move);
      const std::byte* src = call.in[move.src].data;
      const auto dst = memory.place(call.in[move.dst].data);
      for (int64_t b = 0; b < call.extents().sequence; ++b) {
        pending.push_back(endpoint.put_async(dst + (t.dst + b * t.dst_batch), move.peer,
                                             src + t.src + b * t.src_batch, t.block, tag));
      }
    }
    // On the same thread after the puts: a reader of the count sees the data.
    for (int peer : peers) {
      endpoint.signal(counter(memory, call.in[0], endpoint.rank()), peer, fabric::SignalOp::add, 1,
                      tag);
    }
    for (fabric::Transfer& transfer : pending) transfer.wait();
  };
}

BoundKernel bind_sync(const LaunchArgs& args, fabric::Endpoint& endpoint, const MeshComms& comms) {
  const OpCall& call = args.call;
  const auto& a = call.attrs<ops::SyncAttrs>();
  fabric::SymmetricMemory& memory = symmetric(args);
  fabric::Comm* comm = a.ranks() > 1 ? &comms.at(a.axis, a.group, args.stream) : nullptr;
  const fabric::Tag tag = endpoint.tag("sync");
  return [&call, &a, &memory, &endpoint, comm, tag](const Team& team) {
    if (team.index == 0) {
      for (int output : a.opened_arrivals) {
        const TensorView& counters = call.out[output];
        for (int64_t from = 0; from < counters.shape[0]; ++from) {
          auto* signal = reinterpret_cast<fabric::Signal*>(counters.row(from));
          std::atomic_ref<uint64_t>(signal->value).store(0, std::memory_order_seq_cst);
        }
      }
    }
    if (comm != nullptr) fabric::barrier(*comm, team);
    if (team.index != 0) return;
    for (int from = 0; from < static_cast<int>(a.arrivals.size()); ++from) {
      const auto expected = static_cast<uint64_t>(a.arrivals[from]);
      if (expected == 0) continue;
      endpoint.wait(counter(memory, call.in[ops::kSyncArrivals], from), expected,
                    {.tag = tag, .from = from});
    }
  };
}

Kernel fabric_kernel(std::function<BoundKernel(const LaunchArgs&)> bind) {
  return {.info =
              [](const Op& op, TypeList, TypeList, int) {
                return KernelInfo{.name = fmt::format("{}.fabric", op.def->kind),
                                  .holds_units = op.def->remote != RemoteUse::pulls};
              },
          .bind = std::move(bind)};
}

}  // namespace

MeshComms::MeshComms(fabric::Endpoint& endpoint, std::span<const Mesh> meshes) {
  for (MeshGroup& group : groups_of(endpoint.rank(), meshes)) {
    Group& made = groups_.emplace_back(Group{std::move(group), {}});
    // Groups of an axis share names: a fabric has few tags.
    for (Stream stream : kStreams) {
      made.comms[stream] = std::make_unique<fabric::Comm>(
          endpoint, fabric::Group{made.group.ranks},
          fabric::CommConfig{.name = fmt::format("sp.{}.{}", made.group.axis, to_string(stream)),
                             .slot_bytes = 64});
    }
  }
}

fabric::Comm& MeshComms::at(const std::string& axis, const std::vector<int>& ranks,
                            Stream stream) const {
  const auto it = std::ranges::find_if(
      groups_, [&](const Group& g) { return g.group.axis == axis && g.group.ranks == ranks; });
  BRAID_CHECK(it != groups_.end(), "a sync of ranks {}: they are no group of the axis '{}'",
              fmt::join(ranks, ", "), axis);
  return *it->comms[stream];
}

void add_one_sided_kernels(KernelTable& table, fabric::Endpoint& endpoint, const MeshComms& comms) {
  table.add(ops::kPull.kind, fabric_kernel([&endpoint](const LaunchArgs& args) {
              return bind_pull(args, endpoint);
            }));
  table.add(ops::kPush.kind, fabric_kernel([&endpoint](const LaunchArgs& args) {
              return bind_push(args, endpoint);
            }));
  table.add(ops::kSync.kind, fabric_kernel([&endpoint, &comms](const LaunchArgs& args) {
              return bind_sync(args, endpoint, comms);
            }));
  add_expert_exchange(table, endpoint);
  add_expert_tiles(table, endpoint);
}

void add_unbound_one_sided_kernels(KernelTable& table) {
  for (const OpDef* def : {&ops::kPull, &ops::kPush, &ops::kSync}) {
    table.add(def->kind, fabric_kernel([](const LaunchArgs& args) -> BoundKernel {
                BRAID_CHECK(false, "{} without a fabric", args.call.op->def->kind);
                return {};
              }));
  }
  add_unbound_expert_exchange(table);
  add_unbound_expert_tiles(table);
}

}  // namespace braid::cpu
