// Joins push, sync and what reads the rows (comm/exchange_run.h), for few rows between GPUs of a
// machine.
#include <algorithm>
#include <memory>

#include "braid/backend/cuda/memory.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/bind_merge.h"
#include "braid/kernels/cuda/comm/device/exchange_rows.h"
#include "braid/kernels/cuda/comm/exchange_run.h"
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
class Exchange {
 public:
  Exchange(std::span<const LaunchArgs> launches, const OneSidedComm& comm)
      : push_(launches[0].call),
        comm_(comm),
        pieces_(push_, comm.endpoint(), true, launches[0].whole_batch),
        ended_(
            std::make_unique<CudaMemory>(launches[0].device.id, kMaxCommRanks * sizeof(uint32_t))) {
    exchange_.stores.peers = push_.attrs<ops::MoveAttrs>().peers();
    exchange_.stores.ended = reinterpret_cast<uint32_t*>(ended_->data());
    const ExchangeConfig config = choose_exchange(
        pieces_.num(), most_bytes(push_), rows_of(launches[2].call), launches[0].device.num_sms);
    exchange_.stores.ctas = config.ctas;
    exchange_.pushers = config.pushers;
    exchange_.expected = launches[1].call.attrs<ops::SyncAttrs>().arrivals;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  template <class Last>
  void launch(const Last& last, const LaunchContext& context) {
    pieces_.count();
    exchange_.stores.pieces.clear();
    exchange_.peer_of_piece.clear();
    for (size_t i = 0; i < exchange_.stores.peers.size(); ++i) {
      pieces_.append(exchange_.stores.peers[i], exchange_.stores.pieces);
      exchange_.peer_of_piece.resize(exchange_.stores.pieces.size(), static_cast<int>(i));
    }
    exchange_.arrivals = push_.in[0].as<const uint32_t>();
    comm_.exchange(exchange_, last, context);
  }

 private:
  const OpCall& push_;
  const OneSidedComm& comm_;
  const TransferPieces pieces_;
  const std::unique_ptr<DeviceMemory> ended_;  // of stores
  OneSidedComm::Exchange exchange_;
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
  const auto exchange = std::make_shared<Exchange>(launches, comm);
  const LaunchArgs& last = launches[2];
  if (last.call.op->def == &ops::kKvWrite) {
    return [exchange, &call = last.call](const LaunchContext& context) {
      exchange->launch(keep_args(call), context);
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
  return [exchange, none, &call = last.call,
          queries = merge_queries(last)](const LaunchContext& context) {
    MergeStatesParams p = merge_params(call, queries);
    if (none && p.own == nullptr) p.out.shape = {0, p.out.shape.elems()};
    exchange->launch(p, context);
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

void add_exchanges(KernelTable& table, const OneSidedComm& comm) {
  table.set_join(
      {.form = &kExchange,
       .plan = [&comm](const Program& program, const LaunchRun& run) -> LaunchGroup {
         const int ranks = exchange_ranks(program, run);
         if (ranks == 0 || !one_machine(comm.endpoint(), ranks)) return {};
         return {.count = 3, .form = &kExchange, .kernel = "exchange"};
       },
       .bind = [&comm](const LaunchGroup&,
                       std::span<const LaunchArgs> launches) { return bind(launches, comm); }});
}

}  // namespace braid::cuda
