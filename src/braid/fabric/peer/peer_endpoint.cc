#include "braid/fabric/peer/peer_endpoint.h"

#include <algorithm>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/endpoint_rules.h"
#include "braid/fabric/peer/copy_block.h"
#include "braid/fabric/peer/peer_fabric.h"
#include "braid/fabric/peer/pending_copy.h"
#include "braid/fabric/peer/stream_write.h"

namespace braid::fabric {

PeerEndpoint::PeerEndpoint(PeerFabric& fabric, int rank)
    : fabric_(fabric), rank_(rank), device_(fabric.config_.devices[rank]), counters_(fabric.tags_) {
  for (int peer = 0; peer < fabric.config_.ranks; ++peer) {
    auto p = std::make_unique<Peer>();
    p->link = fabric.config_.links.between(rank, peer, fabric.config_.ranks);
    verbs_.links.push_back(p->link);
    peers_.push_back(std::move(p));
    std::byte* const control = fabric.control_->part(peer);
    const bool reached = fabric.reach_[rank * fabric.config_.ranks + peer];
    verbs_.control.push_back(reached ? reinterpret_cast<PeerControl*>(control) : nullptr);
  }
  verbs_.rank = rank;
  verbs_.device = device_;
  verbs_.shares_gpu = std::ranges::count(fabric.config_.devices, device_) > 1;
  verbs_.deadline_ns = static_cast<uint64_t>(fabric.config_.device_deadline.count());
  verbs_.report = reinterpret_cast<WaitReport*>(fabric.reports_->part(rank));
}

PeerEndpoint::~PeerEndpoint() {
  for (const auto& peer : peers_) {
    for (const cuda::OwnedStream* stream : {&peer->puts, &peer->gets}) {
      if (*stream) cudaStreamSynchronize(stream->get());
    }
  }
}

cudaStream_t PeerEndpoint::made(cuda::OwnedStream& stream) {
  std::lock_guard lock(streams_mutex_);
  const cuda::DeviceScope guard(device_);
  if (!stream) stream = cuda::make_stream();
  return stream.get();
}

LinkClass PeerEndpoint::link(int from, int to) const {
  return fabric_.config_.links.between(from, to, world_size());
}

Link PeerEndpoint::speed(int from, int to) const {
  return fabric_.config_.links.speed(link(from, to)).value_or(Link{});
}

Tag PeerEndpoint::tag(std::string_view name) {
  return fabric_.tags_.intern(name);
}

void PeerEndpoint::check() const {
  fabric_.check(rank_);
}

std::optional<SymPtr<std::byte>> PeerEndpoint::place(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  std::lock_guard lock(fabric_.table_->mutex);
  for (PeerSegment* segment : fabric_.table_->segments) {
    const std::byte* const part = segment->part(rank_);
    if (segment->where() == PeerSegment::Where::device && part <= at &&
        at < part + segment->bytes()) {
      return SymPtr<std::byte>{segment, at - part};
    }
  }
  return std::nullopt;
}

std::byte* PeerEndpoint::reach(const void* local, int peer) const {
  const auto at = place(local);
  if (!at || !fabric_.reach_[rank_ * world_size() + peer]) return nullptr;
  return static_cast<PeerSegment*>(at->segment)->part(peer) + at->offset;
}

std::unique_ptr<LinkProxy::Job> PeerEndpoint::make_transfer(int peer, bool put) {
  return (put ? fabric_.proxy(rank_, peer) : fabric_.proxy(peer, rank_)).make_job();
}

std::byte* PeerEndpoint::transfer_end(SymPtr<std::byte> at, int peer) const {
  return static_cast<PeerSegment*>(at.segment)->part(peer) + at.offset;
}

template <class T>
PeerSegment& PeerEndpoint::checked(SymPtr<T> at, int peer, const Block& block,
                                   int64_t stride) const {
  check_range(*this, at, peer, block, stride);
  return static_cast<PeerSegment&>(*at.segment);
}

std::atomic_ref<uint64_t> PeerEndpoint::counter(SymPtr<Signal> slot, int rank) const {
  PeerSegment& segment = checked(slot, rank, {.row_bytes = sizeof(Signal)}, 0);
  BRAID_CHECK(segment.where() == PeerSegment::Where::host, "'{}' does not hold signals",
              segment.name());
  return std::atomic_ref<uint64_t>(
      reinterpret_cast<Signal*>(segment.part(rank) + slot.offset)->value);
}

uint64_t PeerEndpoint::peek(SymPtr<Signal> slot) const {
  return counter(slot, rank_).load(std::memory_order_acquire);
}

Transfer PeerEndpoint::pending(int device, cudaStream_t stream, bool put, int peer, int64_t bytes,
                               Tag tag) {
  return pending_copy(
      {fabric_.error_, rank_, fabric_.config_.deadline}, device, stream,
      describe_transfer(fabric_.tags_.name(tag), put ? Verb::put : Verb::get, bytes, peer));
}

Transfer PeerEndpoint::put_async(SymPtr<std::byte> dst, int peer, const void* src,
                                 const Block& block, Tag tag) {
  PeerSegment& segment = checked(dst, peer, block, block.dst_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::put, peers_[peer]->link, block.bytes());
  std::byte* const to = segment.part(peer) + dst.offset;
  const auto* const from = static_cast<const std::byte*>(src);
  if (peers_[peer]->link == LinkClass::cluster) {
    StagedLink& link = fabric_.staged(rank_, peer);
    std::lock_guard lock(link.mutex());
    peers_[peer]->has_puts = true;
    link.copy(to, from, block);
    return pending(link.from_device(), link.sent(), true, peer, block.bytes(), tag);
  }
  const cuda::DeviceScope guard(device_);
  const cudaStream_t stream = made(peers_[peer]->puts);
  peers_[peer]->has_puts = true;
  copy_async(to, from, block, stream);
  return pending(device_, stream, true, peer, block.bytes(), tag);
}

Transfer PeerEndpoint::get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                                 Tag tag) {
  PeerSegment& segment = checked(src, peer, block, block.src_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::get, peers_[peer]->link, block.bytes());
  auto* const to = static_cast<std::byte*>(dst);
  const std::byte* const from = segment.part(peer) + src.offset;
  if (peers_[peer]->link == LinkClass::cluster) {
    StagedLink& link = fabric_.staged(peer, rank_);
    std::lock_guard lock(link.mutex());
    link.copy(to, from, block);
    return pending(link.to_device(), link.arrived(), false, peer, block.bytes(), tag);
  }
  const cuda::DeviceScope guard(device_);
  const cudaStream_t stream = made(peers_[peer]->gets);
  copy_async(to, from, block, stream);
  return pending(device_, stream, false, peer, block.bytes(), tag);
}

void PeerEndpoint::signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) {
  constexpr int64_t kSignalBytes = sizeof(uint64_t);
  std::atomic_ref<uint64_t> word = counter(slot, peer);
  Peer& p = *peers_[peer];
  counters_.add(tag, Verb::signal, p.link, kSignalBytes);
  // With nothing ahead in the stream the host delivers the signal.
  const auto deliver = [&] {
    op == SignalOp::set ? word.store(value) : static_cast<void>(word.fetch_add(value));
  };
  if (!p.has_puts.load()) return deliver();
  const bool staged = p.link == LinkClass::cluster;
  const int device = staged ? fabric_.staged(rank_, peer).to_device() : device_;
  const cudaStream_t stream = staged ? fabric_.staged(rank_, peer).arrived() : p.puts.get();
  if (cudaStreamQuery(stream) == cudaSuccess) return deliver();
  const cuda::DeviceScope guard(device);
  auto* const address =
      &reinterpret_cast<Signal*>(static_cast<PeerSegment&>(*slot.segment).part(peer) + slot.offset)
           ->value;
  op == SignalOp::set ? stream_write(stream, address, value) : stream_add(stream, address, value);
}

void PeerEndpoint::wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) {
  const auto seen = counter(slot, rank_);
  if (seen.load(std::memory_order_acquire) >= value) return;
  fabric_.wait(
      rank_, what.deadline, [&] { return seen.load(std::memory_order_acquire) >= value; },
      [&] { return describe_wait(fabric_.tags_.name(what.tag), slot, what, value, seen.load()); });
}

std::shared_ptr<Segment> PeerEndpoint::allocate_bytes(int64_t count, int64_t elem_bytes,
                                                      std::string_view name) {
  // Elements of a cache line are signals: no other element has this size.
  const auto where =
      elem_bytes == sizeof(Signal) ? PeerSegment::Where::host : PeerSegment::Where::device;
  return fabric_.allocate(rank_, next_allocation_++, buffer_bytes(count, elem_bytes, name), where,
                          name);
}

}  // namespace braid::fabric
