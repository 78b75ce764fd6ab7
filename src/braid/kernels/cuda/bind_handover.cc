// Joins push, sync and what reads the rows (comm/handover_run.h), for few rows between GPUs of a
// machine.
#include <algorithm>
#include <memory>

#include "braid/backend/cuda/memory.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/bind_merge.h"
#include "braid/kernels/cuda/comm/device/handover.h"
#include "braid/kernels/cuda/comm/handover_run.h"
#include "braid/kernels/cuda/register.h"
#include "braid/kernels/cuda/transfer_pieces.h"
#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"

namespace braid::cuda {
namespace {

// Rows of the last op, a warp's work each.
int64_t rows_of(const OpCall& last) {
  if (last.op->def == &ops::kKvWrite) return 2 * last.in[2].shape[0];
  return last.out[0].shape.elems() / (last.in[0].shape[3] - 2);
}

int64_t most_bytes(const OpCall& push) {
  int64_t most = 0;
  for (const ops::Move& move : push.attrs<ops::MoveAttrs>().moves) {
    const TensorView& src = push.in[move.src];
    most = std::max(most, bytes_of(src.dtype, move.elems(src.shape[3])));
  }
  return most;
}

// A group's push and sync. Stays in place after binding.
class Handover {
 public:
  Handover(std::span<const LaunchArgs> launches, const OneSidedComm& comm)
      : push_(launches[0].call),
        comm_(comm),
        pieces_(push_, comm.endpoint(), true, launches[0].whole_batch),
        ended_(
            std::make_unique<CudaMemory>(launches[0].device.id, kMaxCommRanks * sizeof(uint32_t))) {
    handover_.stores.peers = push_.attrs<ops::MoveAttrs>().peers();
    handover_.stores.ended = reinterpret_cast<uint32_t*>(ended_->data());
    const HandoverConfig config = choose_handover(
        pieces_.num(), most_bytes(push_), rows_of(launches[2].call), launches[0].device.num_sms);
    handover_.stores.ctas = config.ctas;
    handover_.pushers = config.pushers;
    handover_.expected = launches[1].call.attrs<ops::SyncAttrs>().arrivals;
  }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  template <class Last>
  void launch(const Last& last, const LaunchContext& context) {
    pieces_.count();
    handover_.stores.pieces.clear();
    handover_.peer_of_piece.clear();
    for (size_t i = 0; i < handover_.stores.peers.size(); ++i) {
      pieces_.append(handover_.stores.peers[i], handover_.stores.pieces);
      handover_.peer_of_piece.resize(handover_.stores.pieces.size(), static_cast<int>(i));
    }
    handover_.arrivals = push_.in[0].as<const uint32_t>();
    comm_.hand_over(handover_, last, context);
  }

 private:
  const OpCall& push_;
  const OneSidedComm& comm_;
  const TransferPieces pieces_;
  const std::unique_ptr<DeviceMemory> ended_;  // of stores
  OneSidedComm::Handover handover_;
};

KeepRowsArgs keep_args(const OpCall& call) {
  const TensorView &k = call.in[0], &v = call.in[1], &cache_k = call.in[3], &cache_v = call.in[4];
  return {.from = {reinterpret_cast<const uint4*>(k.data), reinterpret_cast<const uint4*>(v.data)},
          .to = {reinterpret_cast<uint4*>(cache_k.data), reinterpret_cast<uint4*>(cache_v.data)},
          .at = call.in[2].as<const int32_t>(),
          .slots = cache_k.shape[0] * cache_k.shape[1],
          .rows = static_cast<int>(call.in[2].shape[0]),
          .words = static_cast<int>(bytes_of(k.dtype, k.shape[2] * k.shape[3]) / 16)};
}

BoundKernel bind(std::span<const LaunchArgs> launches, const OneSidedComm& comm) {
  const auto handover = std::make_shared<Handover>(launches, comm);
  const LaunchArgs& last = launches[2];
  if (last.call.op->def == &ops::kKvWrite) {
    return [handover, &call = last.call](const LaunchContext& context) {
      handover->launch(keep_args(call), context);
    };
  }
  // A rank that awaits no states has no results. Their place may be that of what it pushes.
  const auto& awaited = launches[1].call.attrs<ops::SyncAttrs>().arrivals;
  const bool none = std::ranges::count(awaited, 0) == std::ssize(awaited);
  const std::vector<int> peers = launches[0].call.attrs<ops::MoveAttrs>().peers();
  BRAID_CHECK(none || last.call.in.size() > 1 || peers.empty() ||
                  std::ranges::count(peers, comm.endpoint().rank()) > 0,
              "states of {} peers may lie under the results of a rank that awaits {} others",
              peers.size(), awaited.size());
  return [handover, none, &call = last.call,
          queries = merge_queries(last)](const LaunchContext& context) {
    MergeStatesParams p = merge_params(call, queries);
    if (none && p.own == nullptr) p.out.shape = {0, p.out.shape.elems()};
    handover->launch(p, context);
  };
}

// All ranks choose alike, whatever they send themselves.
bool one_machine(const fabric::DeviceEndpoint& endpoint, int ranks) {
  for (int peer = 0; peer < ranks; ++peer) {
    if (endpoint.link(endpoint.rank(), peer) == LinkClass::cluster) return false;
  }
  return true;
}

}  // namespace

void add_handovers(KernelTable& table, const OneSidedComm& comm) {
  table.set_join(
      {.form = &kHandover,
       .plan = [&comm](const Program& program, const LaunchRun& run) -> LaunchGroup {
         const int ranks = handover_ranks(program, run);
         if (ranks == 0 || !one_machine(comm.endpoint(), ranks)) return {};
         return {.count = 3, .form = &kHandover, .kernel = "handover"};
       },
       .bind = [&comm](const LaunchGroup&,
                       std::span<const LaunchArgs> launches) { return bind(launches, comm); }});
}

}  // namespace braid::cuda
