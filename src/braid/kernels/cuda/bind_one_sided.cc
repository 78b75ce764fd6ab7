// Binds the one-sided ops to copy engines and small kernels.
#include <algorithm>

#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/comm/pull_order.h"
#include "braid/kernels/cuda/comm/push_config.h"
#include "braid/kernels/cuda/register.h"
#include "braid/kernels/cuda/transfer_pieces.h"
#include "braid/ops/one_sided.h"

namespace braid::cuda {
namespace {

// A launch that waits for peers begins early only alone: its followers hold SMs meanwhile.
LaunchContext early_if_alone(const LaunchContext& context, const Beside& beside) {
  const bool alone = !beside.computes && !beside.pulls && !beside.communicates;
  return {context.stream, context.pdl && alone};
}

// Paths of a pull's or push's moves. Stays in place after binding.
class Transfers {
 public:
  Transfers(const LaunchArgs& args, const OneSidedComm& comm, bool put)
      : call_(args.call),
        comm_(comm),
        put_(put),
        pieces_(args.call, comm.endpoint(), put, args.whole_batch),
        by_stream_(args.by_stream),
        ahead_(args.words),
        beside_(args.beside),
        config_(put ? choose(describe(args.beside.computes), args.device.num_sms) : PushConfig{}) {
    const auto& attrs = call_.attrs<ops::MoveAttrs>();
    asked_.peers = attrs.peers();  // peers left over at the end are only told
    for (int peer : asked_.peers) {
      const bool moves = std::ranges::count(attrs.moves, peer, &ops::Move::peer) > 0;
      if (!moves || config_.ctas > 0) break;
      asked_.jobs.push_back(comm.endpoint().make_transfer(peer, put));
      asked_.jobs.back()->set_name(
          fmt::format("{} at '{}' with rank {}", call_.op->def->kind, call_.op->scope, peer));
    }
    if (config_.ctas > 0) ended_ = std::make_unique<CudaMemory>(args.device.id, sizeof(uint32_t));
    asked_.asked = args.asked_by != nullptr;
    for (size_t i = 0; asked_.asked && i < asked_.jobs.size(); ++i) {
      args.asked_by->add(asked_.jobs[i]->asked(), [this, i] { set_pieces(i); });
    }
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void launch(const uint32_t* arrivals, const LaunchContext& context) {
    pieces_.count();
    if (config_.ctas > 0) {
      std::vector<fabric::LinkProxy::Piece> pieces;
      for (int peer : asked_.peers) pieces_.append(peer, pieces);
      auto* const ended = reinterpret_cast<uint32_t*>(ended_->data());
      return comm_.store({std::move(pieces), asked_.peers, ended, config_.ctas}, arrivals,
                         early_if_alone(context, beside_));
    }
    for (size_t i = 0; !asked_.asked && i < asked_.jobs.size(); ++i) set_pieces(i);
    if (!put_ && by_stream_) {
      return comm_.fetch(asked_, ahead_ ? ahead_->words() : std::span<uint32_t* const>{}, context);
    }
    comm_.transfer(asked_, arrivals, context);
  }

 private:
  const std::vector<ops::Move>& moves() const { return call_.attrs<ops::MoveAttrs>().moves; }

  // For a push of a full batch.
  PushDesc describe(bool computes_beside) const {
    PushDesc desc{.computes_beside = computes_beside};
    const fabric::DeviceEndpoint& e = comm_.endpoint();
    for (const ops::Move& move : moves()) {
      const TensorView& src = call_.in[move.src];
      desc.pieces += src.shape[0];
      desc.bytes += src.shape[0] * bytes_of(src.dtype, move.elems(src.shape[3]));
      const int64_t rows = call_.in[move.dst].shape[2];
      for (int64_t heads : {move.heads, move.src_head, move.dst_head, src.shape[2], rows}) {
        desc.words &= bytes_of(src.dtype, heads * src.shape[3]) % 16 == 0;
      }
      desc.across_machines |= e.link(e.rank(), move.peer) == LinkClass::cluster;
    }
    return desc;
  }

  void set_pieces(size_t job) {
    std::vector<fabric::LinkProxy::Piece> pieces;
    pieces_.append(asked_.peers[job], pieces);
    asked_.jobs[job]->set(pieces);
  }

  const OpCall& call_;
  const OneSidedComm& comm_;
  const bool put_;
  const TransferPieces pieces_;
  const bool by_stream_;
  const LaunchWords* const ahead_;  // perhaps for the next pull
  const Beside beside_;
  const PushConfig config_;
  std::unique_ptr<DeviceMemory> ended_;  // of stores
  OneSidedComm::Transfers asked_;
};

BoundKernel bind_pull(const LaunchArgs& args, const OneSidedComm& comm) {
  const auto transfers = std::make_shared<Transfers>(args, comm, false);
  return [transfers](const LaunchContext& context) { transfers->launch(nullptr, context); };
}

BoundKernel bind_push(const LaunchArgs& args, const OneSidedComm& comm) {
  const auto transfers = std::make_shared<Transfers>(args, comm, true);
  return [transfers, &call = args.call](const LaunchContext& context) {
    transfers->launch(call.in[0].as<const uint32_t>(), context);
  };
}

BoundKernel bind_sync(const LaunchArgs& args, const OneSidedComm& comm) {
  return [&call = args.call, &comm, stream = args.stream,
          beside = args.beside](const LaunchContext& context) {
    const auto& a = call.attrs<ops::SyncAttrs>();
    OneSidedComm::Sync sync{.axis = a.ranks() > 1 ? a.axis : "",
                            .ranks = a.group,
                            .opened = {},
                            .expected = a.arrivals};
    for (int output : a.opened_arrivals) {
      sync.opened.push_back(call.out[output].as<uint32_t>());
      sync.counted = static_cast<int>(call.out[output].shape[0]);
    }
    if (!a.arrivals.empty()) sync.arrivals = call.in[ops::kSyncArrivals].as<const uint32_t>();
    comm.sync(sync, stream, early_if_alone(context, beside));
  };
}

std::vector<PulledFrom> pulled_from(const fabric::DeviceEndpoint& e, const ops::MoveAttrs& pull) {
  std::vector<PulledFrom> from;
  for (const ops::Move& m : pull.moves) from.push_back({m.peer, e.link(e.rank(), m.peer)});
  return from;
}

}  // namespace

void add_one_sided_kernels(KernelTable& table, const OneSidedComm& comm) {
  const auto add = [&](const OpDef& def, auto bind) {
    table.add(def.kind,
              {.info =
                   [](const Op& op, TypeList, TypeList, const DeviceInfo&) {
                     // Copy engines pull, or kernels on an SM that attention spares.
                     return KernelInfo{.name = fmt::format("{}.peer", op.def->kind),
                                       .holds_units = op.def->remote != RemoteUse::pulls};
                   },
               .bind = [&comm, bind](const LaunchArgs& args) { return bind(args, comm); }});
  };
  add(ops::kPull, bind_pull);
  add(ops::kPush, bind_push);
  add(ops::kSync, bind_sync);
  add_handovers(table, comm);
  // With ranks on the same GPU, a rank's words have held up another rank's awaited work.
  table.set_streams_wait(has_queues_for_words() && !comm.endpoint().verbs().shares_gpu);
  table.set_goes_ahead([&comm](const ops::MoveAttrs& before, const ops::MoveAttrs& pull) {
    const fabric::DeviceEndpoint& e = comm.endpoint();
    return shares_no_port(pulled_from(e, before), pulled_from(e, pull));
  });
}

}  // namespace braid::cuda
