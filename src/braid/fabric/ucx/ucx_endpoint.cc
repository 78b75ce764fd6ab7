#include "braid/fabric/ucx/ucx_endpoint.h"

#include <utility>

#include "braid/fabric/endpoint_rules.h"
#include "braid/fabric/local/link_engine.h"
#include "braid/fabric/ucx/ucx_fabric.h"

namespace braid::fabric {
namespace {

// Time for which a given-up transfer may use its memory before its connection is ended.
constexpr Duration kToComplete = std::chrono::seconds(1);
// A connection that broke becomes the job's error within this time.
constexpr Duration kToLearn = std::chrono::seconds(5);

}  // namespace

// A put or get to another process.
class UcxEndpoint::Pending : public Transfer::Pending {
 public:
  Pending(UcxFabric& fabric, int rank, int peer, Verb verb, int64_t bytes, Tag tag)
      : fabric_(fabric), rank_(rank), peer_(peer), verb_(verb), bytes_(bytes), tag_(tag) {}

  void wait() override {
    fabric_.outbox_.flush(fabric_.process_of(peer_));
    const auto describe = [&] {
      return describe_transfer(fabric_.tags_.name(tag_), verb_, bytes_, peer_) + ": not complete";
    };
    fabric_.wait(
        rank_, {}, [&] { return complete(); }, describe);
    if (failed())
      fabric_.wait(
          rank_, kToLearn, [] { return false; }, describe);
  }

 protected:
  virtual bool complete() const = 0;
  virtual bool failed() const = 0;
  // Afterwards UCX leaves the caller's memory alone.
  void settle(const std::function<bool()>& busy) {
    fabric_.outbox_.flush(fabric_.process_of(peer_));
    for (int attempt = 0; attempt < 2 && busy(); ++attempt) {
      if (attempt > 0) fabric_.worker_.drop(fabric_.process_of(peer_));
      const Clock::time_point end = Clock::now() + kToComplete;
      while (busy() && Clock::now() < end) {
        if (!fabric_.worker_.progress()) std::this_thread::yield();
      }
    }
  }

  UcxFabric& fabric_;
  const int rank_, peer_;
  const Verb verb_;
  const int64_t bytes_;
  const Tag tag_;
};

class UcxEndpoint::PendingPut final : public Pending {
 public:
  PendingPut(UcxFabric& fabric, int rank, int peer, int64_t bytes, Tag tag,
             std::shared_ptr<UcxSend> send)
      : Pending(fabric, rank, peer, Verb::put, bytes, tag), send_(std::move(send)) {}
  ~PendingPut() override {
    settle([this] { return !send_->complete; });
  }

 private:
  bool complete() const override { return send_->complete; }
  bool failed() const override { return send_->failed; }
  const std::shared_ptr<UcxSend> send_;
};

class UcxEndpoint::PendingGet final : public Pending {
 public:
  PendingGet(UcxFabric& fabric, int rank, int peer, int64_t bytes, Tag tag,
             std::shared_ptr<UcxGet> get, uint64_t name)
      : Pending(fabric, rank, peer, Verb::get, bytes, tag), get_(std::move(get)), name_(name) {}
  void wait() override {
    Pending::wait();
    BRAID_CHECK(!get_->gone, "rank {}: {}: rank {} has freed that memory", rank_,
                describe_transfer(fabric_.tags_.name(tag_), verb_, bytes_, peer_), peer_);
  }
  ~PendingGet() override {
    if (get_->complete) return;
    fabric_.arrivals_.remove(name_);
    settle([this] {
      std::lock_guard lock(fabric_.worker_.mutex());
      return get_->receiving;
    });
  }

 private:
  bool complete() const override { return get_->complete; }
  bool failed() const override { return get_->failed; }
  const std::shared_ptr<UcxGet> get_;
  const uint64_t name_;
};

UcxEndpoint::UcxEndpoint(UcxFabric& fabric, int rank)
    : fabric_(fabric), rank_(rank), counters_(fabric.tags_) {}

int UcxEndpoint::world_size() const {
  return fabric_.config_.ranks;
}

LinkClass UcxEndpoint::link(int from, int to) const {
  return fabric_.between(from, to);
}

Tag UcxEndpoint::tag(std::string_view name) {
  return fabric_.tags_.intern(name);
}

void UcxEndpoint::check() const {
  fabric_.error_.check(rank_);
}

UcxSegment& UcxEndpoint::checked(SymPtr<std::byte> at, int peer, const Block& block,
                                 int64_t stride) const {
  check_range(*this, at, peer, block, stride);
  return static_cast<UcxSegment&>(*at.segment);
}

std::atomic_ref<uint64_t> UcxEndpoint::counter(SymPtr<Signal> slot) const {
  UcxSegment& segment = checked(slot, rank_, {.row_bytes = sizeof(Signal)}, 0);
  return std::atomic_ref<uint64_t>(
      reinterpret_cast<Signal*>(segment.part(rank_) + slot.offset)->value);
}

uint64_t UcxEndpoint::peek(SymPtr<Signal> slot) const {
  return counter(slot).load(std::memory_order_acquire);
}

UcxHeader UcxEndpoint::header(const UcxSegment& segment, int64_t offset, int peer) const {
  return {.generation = static_cast<uint16_t>(fabric_.config_.generation),
          .from = fabric_.config_.process,
          .rank = peer,
          .segment = static_cast<uint32_t>(segment.index()),
          .offset = offset};
}

Transfer UcxEndpoint::put_async(SymPtr<std::byte> dst, int peer, const void* src,
                                const Block& block, Tag tag) {
  UcxSegment& segment = checked(dst, peer, block, block.dst_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::put, link(rank_, peer), block.bytes());
  const auto* const from = static_cast<const std::byte*>(src);
  if (std::byte* const part = segment.part(peer)) {
    copy_rows(part + dst.offset, block.dst_stride, from, block.src_stride, block.row_bytes,
              block.rows);
    return {};
  }
  UcxHeader h = header(segment, dst.offset, peer);
  h.kind = UcxHeader::Kind::put;
  h.row_bytes = block.row_bytes;
  h.rows = block.rows;
  h.stride = block.dst_stride;
  const auto send = std::make_shared<UcxSend>();
  std::span<const std::byte> data(from, static_cast<size_t>(block.bytes()));
  const bool packed = block.rows == 1 || block.src_stride == block.row_bytes;
  if (!packed) {
    send->packed.resize(data.size());
    copy_rows(send->packed.data(), block.row_bytes, from, block.src_stride, block.row_bytes,
              block.rows);
    data = send->packed;
  } else {
    send->done = [&fabric = fabric_, rank = rank_] { fabric.doorbell(rank).ring(); };
  }
  fabric_.outbox_.put(fabric_.process_of(peer), h, data, send);
  if (!packed || (send->complete && !send->failed)) return {};
  return Transfer(std::make_unique<PendingPut>(fabric_, rank_, peer, block.bytes(), tag, send));
}

Transfer UcxEndpoint::get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                                Tag tag) {
  UcxSegment& segment = checked(src, peer, block, block.src_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::get, link(rank_, peer), block.bytes());
  auto* const to = static_cast<std::byte*>(dst);
  if (const std::byte* const part = segment.part(peer)) {
    copy_rows(to, block.dst_stride, part + src.offset, block.src_stride, block.row_bytes,
              block.rows);
    return {};
  }
  UcxHeader h = header(segment, src.offset, peer);
  h.kind = UcxHeader::Kind::get;
  h.row_bytes = block.row_bytes;
  h.rows = block.rows;
  h.stride = block.src_stride;
  auto get = std::make_shared<UcxGet>();
  get->dst = to;
  get->block = block;
  get->rank = rank_;
  fabric_.outbox_.flush(fabric_.process_of(peer));
  {
    std::lock_guard lock(fabric_.worker_.mutex());
    h.value = fabric_.arrivals_.add(get);
    fabric_.worker_.send_copy(fabric_.process_of(peer), kFabricMessages,
                              std::as_bytes(std::span(&h, 1)), {});
  }
  return Transfer(std::make_unique<PendingGet>(fabric_, rank_, peer, block.bytes(), tag,
                                               std::move(get), h.value));
}

void UcxEndpoint::signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) {
  constexpr int64_t kSignalBytes = sizeof(uint64_t);
  UcxSegment& segment = checked(slot, peer, {.row_bytes = sizeof(Signal)}, 0);
  counters_.add(tag, Verb::signal, link(rank_, peer), kSignalBytes);
  if (std::byte* const part = segment.part(peer)) {
    deliver(*reinterpret_cast<Signal*>(part + slot.offset), op, value, fabric_.doorbell(peer));
    return;
  }
  UcxHeader h = header(segment, slot.offset, peer);
  h.kind = UcxHeader::Kind::signal;
  h.op = op;
  h.value = value;
  fabric_.outbox_.signal(fabric_.process_of(peer), h);
}

void UcxEndpoint::wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) {
  const auto seen = counter(slot);
  if (seen.load(std::memory_order_acquire) >= value) return;
  fabric_.outbox_.flush();
  fabric_.wait(
      rank_, what.deadline, [&] { return seen.load(std::memory_order_seq_cst) >= value; },
      [&] { return describe_wait(fabric_.tags_.name(what.tag), slot, what, value, seen.load()); });
}

std::shared_ptr<Segment> UcxEndpoint::allocate_bytes(int64_t count, int64_t elem_bytes,
                                                     std::string_view name) {
  return fabric_.allocate(rank_, next_allocation_++, buffer_bytes(count, elem_bytes, name), name);
}

}  // namespace braid::fabric
