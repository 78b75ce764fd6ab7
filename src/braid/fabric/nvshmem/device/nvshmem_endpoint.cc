#include "braid/fabric/nvshmem/device/nvshmem_endpoint.h"

#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/endpoint_rules.h"
#include "braid/fabric/nvshmem/device/nvshmem_fabric.h"
#include "braid/fabric/peer/copy_block.h"
#include "braid/fabric/peer/describe_expired.h"
#include "braid/fabric/peer/pending_copy.h"

namespace braid::fabric {

NvshmemEndpoint::NvshmemEndpoint(NvshmemFabric& fabric, Endpoint& host)
    : fabric_(fabric), host_(host) {
  verbs_.rank = host.rank();
  verbs_.device = fabric.config_.device;
  verbs_.deadline_ns = static_cast<uint64_t>(fabric.config_.device_deadline.count());
  verbs_.report = fabric.report_;
  for (int peer = 0; peer < host.world_size(); ++peer) {
    peers_.push_back(std::make_unique<Peer>());
    verbs_.links.push_back(host.link(host.rank(), peer));
    verbs_.control.push_back(reinterpret_cast<PeerControl*>(fabric.control_->part(peer)));
  }
}

NvshmemEndpoint::~NvshmemEndpoint() {
  for (const auto& peer : peers_) {
    for (const cuda::OwnedStream* stream : {&peer->puts, &peer->gets}) {
      if (*stream) cudaStreamSynchronize(stream->get());
    }
  }
}

Tag NvshmemEndpoint::tag(std::string_view name) {
  std::lock_guard lock(mutex_);
  const Tag tag = fabric_.tags_.intern(name);
  BRAID_CHECK(host_.tag(name).id == tag.id, "tag '{}' has another number among hosts", name);
  return tag;
}

std::byte* NvshmemEndpoint::checked(SymPtr<std::byte> at, int peer, const Block& block,
                                    int64_t stride) const {
  check_range(*this, at, peer, block, stride);
  const auto* segment = dynamic_cast<NvshmemSegment*>(at.segment);
  BRAID_CHECK(segment != nullptr, "'{}' holds signals", at.segment->name());
  return segment->part(peer) + at.offset;
}

void NvshmemEndpoint::check_signal(SymPtr<Signal> slot, int peer) const {
  check_range(*this, slot, peer, {.row_bytes = sizeof(Signal)}, 0);
  BRAID_CHECK(dynamic_cast<NvshmemSegment*>(slot.segment) == nullptr, "'{}' does not hold signals",
              slot.segment->name());
}

Transfer NvshmemEndpoint::copy(std::byte* dst, const std::byte* src, int peer, const Block& block,
                               Verb verb, Tag tag) {
  if (block.bytes() == 0) return {};
  traffic().add(tag, verb, link(rank(), peer), block.bytes());
  Peer& p = *peers_[static_cast<size_t>(peer)];
  const cuda::DeviceScope guard(device());
  cudaStream_t stream = nullptr;
  {
    std::lock_guard lock(mutex_);
    cuda::OwnedStream& made = verb == Verb::put ? p.puts : p.gets;
    if (!made) made = cuda::make_stream();
    stream = made.get();
  }
  if (verb == Verb::put) p.has_puts = true;
  copy_async(dst, src, block, stream);
  return pending_copy({fabric_.error_, rank(), fabric_.config_.deadline}, device(), stream,
                      describe_transfer(fabric_.tags_.name(tag), verb, block.bytes(), peer));
}

Transfer NvshmemEndpoint::put_async(SymPtr<std::byte> dst, int peer, const void* src,
                                    const Block& block, Tag tag) {
  std::byte* const to = checked(dst, peer, block, block.dst_stride);
  return copy(to, static_cast<const std::byte*>(src), peer, block, Verb::put, tag);
}

Transfer NvshmemEndpoint::get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                                    Tag tag) {
  const std::byte* const from = checked(src, peer, block, block.src_stride);
  return copy(static_cast<std::byte*>(dst), from, peer, block, Verb::get, tag);
}

void NvshmemEndpoint::signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) {
  check_signal(slot, peer);
  Peer& p = *peers_[static_cast<size_t>(peer)];
  if (p.has_puts.load()) {
    pending_copy({fabric_.error_, rank(), fabric_.config_.deadline}, device(), p.puts.get(),
                 describe_transfer(fabric_.tags_.name(tag), Verb::put, 0, peer))
        .wait();
  }
  host_.signal(slot, peer, op, value, tag);
}

uint64_t NvshmemEndpoint::peek(SymPtr<Signal> slot) const {
  check_signal(slot, rank());
  return host_.peek(slot);
}

void NvshmemEndpoint::wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) {
  check_signal(slot, rank());
  host_.wait(slot, value, what);
}

void NvshmemEndpoint::check() const {
  const WaitReport& report = *verbs_.report;
  if (std::atomic_ref(const_cast<uint32_t&>(report.expired)).load(std::memory_order_acquire) != 0) {
    const Error error(
        ErrorCode::kDeadline,
        describe_expired(rank(), report, fabric_.tags_.name({static_cast<uint16_t>(report.tag)})));
    fabric_.abort(rank(), std::make_exception_ptr(error));
    throw error;
  }
  host_.check();
}

std::optional<SymPtr<std::byte>> NvshmemEndpoint::place(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  std::lock_guard lock(fabric_.table_->mutex);
  for (NvshmemSegment* segment : fabric_.table_->segments) {
    const std::byte* const part = segment->part(rank());
    if (part <= at && at < part + segment->bytes()) return SymPtr<std::byte>{segment, at - part};
  }
  return std::nullopt;
}

std::byte* NvshmemEndpoint::reach(const void* local, int peer) const {
  const auto at = place(local);
  return at ? transfer_end(*at, peer) : nullptr;
}

std::byte* NvshmemEndpoint::transfer_end(SymPtr<std::byte> at, int peer) const {
  return static_cast<NvshmemSegment*>(at.segment)->part(peer) + at.offset;
}

std::unique_ptr<LinkProxy::Job> NvshmemEndpoint::make_transfer(int, bool) {
  std::lock_guard lock(mutex_);
  if (!proxy_) {
    proxy_ = std::make_unique<DirectLink>(
        LinkProxy::Sender{rank(), device(), fabric_.config_.device_deadline, fabric_.error_});
  }
  return proxy_->make_job();
}

std::shared_ptr<Segment> NvshmemEndpoint::allocate_bytes(int64_t count, int64_t elem_bytes,
                                                         std::string_view name) {
  // Elements of a cache line are signals: no other element has this size.
  if (elem_bytes == sizeof(Signal)) {
    return host_.allocate<Signal>(count, name).at().segment->shared_from_this();
  }
  return fabric_.allocate(buffer_bytes(count, elem_bytes, name), name);
}

}  // namespace braid::fabric
