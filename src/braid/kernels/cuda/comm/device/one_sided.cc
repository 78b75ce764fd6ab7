#include "braid/kernels/cuda/comm/device/one_sided.h"

#include <algorithm>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"
#include "braid/fabric/group.h"
#include "braid/kernels/cuda/comm/device/handover.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"
#include "braid/kernels/cuda/comm/device/push_rows.h"

namespace braid::cuda {
namespace {

template <class Kernel, class Params>
void launch(Kernel kernel, const CommView& view, const Params& params,
            const LaunchContext& context) {
  launch_kernel(context, kernel, dim3(1), dim3(32), 0, view, params);
}

}  // namespace

OneSidedComm::OneSidedComm(fabric::DeviceEndpoint& endpoint, std::span<const Mesh> meshes)
    : endpoint_(endpoint),
      sync_tag_(endpoint.tag("sync")),
      transfer_tag_(endpoint.tag("transfer")) {
  const int world = endpoint.world_size();
  if (world > kMaxCommRanks) {
    fail(ErrorCode::kUnsupported, "one-sided ops on {} GPUs, at most {}", world, kMaxCommRanks);
  }
  const DeviceScope guard(endpoint.device());
  for (MeshGroup& group : groups_of(endpoint.rank(), meshes)) {
    Group& made = groups_.emplace_back(Group{std::move(group), {}});
    for (Stream stream : kStreams) {
      made.points[stream] = endpoint.allocate<MeetingPoint>(
          1, fmt::format("sp.{}.{}", made.group.name, to_string(stream)));
    }
  }
  view_.rank = endpoint.rank();
  view_.ranks = world;
  view_.deadline_ns = endpoint.verbs().deadline_ns;
  view_.report = endpoint.verbs().report;
  for (int p = 0; p < world; ++p) {
    view_.world_rank[p] = p;
    view_.peer_control[p] = endpoint.verbs().control[p];
    if (view_.peer_control[p] == nullptr) {
      fail(ErrorCode::kUnsupported,
           "one-sided ops: kernels of rank {} have no path to the memory of rank {}",
           endpoint.rank(), p);
    }
  }
  view_.aborted = &view_.peer_control[view_.rank]->aborted;
  load_kernel(sync_kernel_of());
  load_kernel(transfer_kernel_of());
  load_kernel(push_rows_kernel_of());
  load_handovers();
  const auto ready = endpoint.allocate<fabric::Signal>(world, "sp.ready");
  for (int p = 0; p < world; ++p) {
    endpoint.signal(ready.at(endpoint.rank()), p, fabric::SignalOp::set, 1, sync_tag_);
  }
  for (int p = 0; p < world; ++p) {
    endpoint.wait(ready.at(p), 1, {.tag = sync_tag_, .from = p});
  }
}

CommView OneSidedComm::view(fabric::Tag tag) const {
  CommView view = view_;
  view.tag = tag.id;
  return view;
}

void OneSidedComm::sync(const Sync& sync, Stream stream, const LaunchContext& context) const {
  SyncParams p{.counted = sync.counted, .early = context.pdl};
  if (!sync.axis.empty()) {
    const auto it = std::ranges::find_if(groups_, [&](const Group& g) {
      return g.group.axis == sync.axis && g.group.ranks == sync.ranks;
    });
    BRAID_CHECK(it != groups_.end(), "ranks {} are no group of the axis '{}'",
                fmt::join(sync.ranks, ", "), sync.axis);
    p.own = it->points[stream].data();
    for (int rank : sync.ranks) {
      if (rank == endpoint_.rank()) continue;
      auto* point = reinterpret_cast<MeetingPoint*>(endpoint_.reach(p.own, rank));
      BRAID_CHECK(point != nullptr, "no path to rank {}", rank);
      p.flags[p.num_members] = &point->flags[endpoint_.rank()];
      p.members[p.num_members++] = rank;
    }
  }
  BRAID_CHECK(sync.opened.size() <= kMaxOpened, "{} counters", sync.opened.size());
  for (uint32_t* counters : sync.opened) p.opened[p.num_opened++] = counters;
  p.arrivals = sync.arrivals;
  for (size_t from = 0; from < sync.expected.size(); ++from) {
    p.expected[from] = static_cast<uint32_t>(sync.expected[from]);
  }
  launch(sync_kernel_of(), view(sync_tag_), p, context);
}

void OneSidedComm::transfer(const Transfers& transfers, const uint32_t* arrivals,
                            const LaunchContext& context) const {
  if (transfers.peers.empty()) return;
  TransferParams p{.n = static_cast<int>(transfers.peers.size())};
  BRAID_CHECK(p.n <= kMaxCommRanks, "{} transfers at once", p.n);
  for (int i = 0; i < p.n; ++i) {
    const int peer = p.peers[i] = transfers.peers[i];
    if (static_cast<size_t>(i) < transfers.jobs.size()) {
      const fabric::LinkProxy::Job& job = *transfers.jobs[i];
      if (!transfers.asked) p.asked[i] = job.asked();
      p.done[i] = job.done();
    }
    if (arrivals != nullptr) p.arrivals[i] = counter_at(arrivals, peer);
  }
  launch(transfer_kernel_of(), view(transfer_tag_), p, {context.stream, false});
}

void OneSidedComm::fetch(const Transfers& transfers, std::span<uint32_t* const> ahead,
                         const LaunchContext& context) const {
  using Does = StreamWord::Does;
  std::vector<StreamWord> words;
  for (const auto& job : transfers.jobs) {
    if (!transfers.asked) words.push_back({Does::write, job->asked(), 1});
  }
  for (uint32_t* asked : ahead) words.push_back({Does::write, asked, 1});
  for (const auto& job : transfers.jobs) words.push_back({Does::wait, job->done(), 1});
  for (const auto& job : transfers.jobs) words.push_back({Does::write, job->done(), 0});
  put_words(context.stream, words);
}

uint32_t* OneSidedComm::counter_at(const uint32_t* arrivals, int peer) const {
  auto* at = reinterpret_cast<uint32_t*>(endpoint_.reach(arrivals, peer));
  BRAID_CHECK(at != nullptr, "arrival counters are not in symmetric memory");
  endpoint_.traffic().add(sync_tag_, fabric::Verb::signal, endpoint_.link(endpoint_.rank(), peer),
                          4);
  return at + endpoint_.rank() * kCounterWords;
}

PushRowsParams OneSidedComm::params(const Stores& stores, const uint32_t* arrivals) const {
  PushRowsParams p{.ended = stores.ended, .early = false};
  BRAID_CHECK(stores.pieces.size() <= kMaxPushPieces, "{} pieces", stores.pieces.size());
  constexpr int64_t kWord = sizeof(uint4);
  for (const fabric::LinkProxy::Piece& piece : stores.pieces) {
    const fabric::Block& block = piece.block;
    p.pieces[p.num_pieces++] = {.dst = reinterpret_cast<uint4*>(piece.dst),
                                .src = reinterpret_cast<const uint4*>(piece.src),
                                .dst_stride = block.dst_stride / kWord,
                                .src_stride = block.src_stride / kWord,
                                .row_words = static_cast<uint32_t>(block.row_bytes / kWord),
                                .rows = static_cast<uint32_t>(block.rows)};
  }
  for (int peer : stores.peers) p.arrivals[p.num_peers++] = counter_at(arrivals, peer);
  return p;
}

void OneSidedComm::store(const Stores& stores, const uint32_t* arrivals,
                         const LaunchContext& context) const {
  PushRowsParams p = params(stores, arrivals);
  p.early = context.pdl;
  launch_kernel(context, push_rows_kernel_of(), dim3(stores.ctas), dim3(kPushThreads), 0,
                view(transfer_tag_), p);
}

HandoverParams OneSidedComm::params(const Handover& handover) const {
  HandoverParams p{.push = params(handover.stores, handover.arrivals),
                   .peer = {},
                   .own = -1,
                   .shares = {},
                   .pushers = handover.pushers,
                   .arrivals = handover.arrivals,
                   .expected = {}};
  const auto own = std::ranges::find(handover.stores.peers, endpoint_.rank());
  if (own != handover.stores.peers.end()) {
    p.own = static_cast<int8_t>(own - handover.stores.peers.begin());
  }
  for (int i = 0; i < p.push.num_pieces; ++i) {
    const int peer = handover.peer_of_piece.at(i);
    const auto shares = shares_of_piece(i, p.push.num_pieces, p.pushers);
    p.peer[i] = static_cast<int8_t>(peer);
    p.shares[peer] += shares;
    if (p.own >= 0 && peer != p.own) p.shares[p.own] += shares;
  }
  for (size_t from = 0; from < handover.expected.size(); ++from) {
    p.expected[from] = static_cast<uint32_t>(handover.expected[from]);
  }
  return p;
}

// Waits are a sync's, and reports name it.
void OneSidedComm::hand_over(const Handover& handover, const MergeStatesParams& merge,
                             const LaunchContext& context) const {
  hand_over_and_merge(view(sync_tag_), params(handover), handover.stores.ctas, merge, context);
}

void OneSidedComm::hand_over(const Handover& handover, const KeepRowsArgs& keep,
                             const LaunchContext& context) const {
  hand_over_and_keep(view(sync_tag_), params(handover), handover.stores.ctas, keep, context);
}

}  // namespace braid::cuda
