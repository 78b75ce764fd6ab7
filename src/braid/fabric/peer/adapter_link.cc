#include "braid/fabric/peer/adapter_link.h"

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/staged_link.h"

namespace braid::fabric {
namespace {

LinkPort::Clock::duration from_seconds(double seconds) {
  return std::chrono::duration_cast<LinkPort::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

LinkPort::Clock::time_point LinkPort::reserve(Clock::time_point ready, Clock::duration busy) {
  std::lock_guard lock(mutex_);
  free_at_ = std::max(free_at_, ready) + busy;
  return free_at_;
}

AdapterLink::AdapterLink(int from_device, int to_device, std::optional<Link> speed,
                         std::shared_ptr<LinkPort> port,
                         std::function<void(std::exception_ptr)> on_error)
    : LinkProxy(from_device, kChunkBytes, std::move(on_error)),
      speed_(speed),
      port_(std::move(port)) {
  {
    const cuda::DeviceScope scope(from_device);
    out_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.full = cuda::make_event();
  }
  {
    const cuda::DeviceScope scope(to_device);
    in_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.empty = cuda::make_event();
  }
  void* ring = nullptr;
  cuda::check_cuda(
      cudaHostAlloc(&ring, kSlots * kChunkBytes, cudaHostAllocPortable | cudaHostAllocMapped),
      "pinned memory of an emulated link");
  for (int i = 0; i < kSlots; ++i) {
    slots_[i].memory = static_cast<std::byte*>(ring) + i * kChunkBytes;
  }
  start();
}

AdapterLink::~AdapterLink() {
  stop();
  cudaStreamSynchronize(out_.get());
  cudaStreamSynchronize(in_.get());
  cudaFreeHost(slots_[0].memory);
}

void AdapterLink::begin(Job& job) {
  for (size_t i = 0; i < job.chunks().size(); ++i) queue_.emplace_back(&job, i);
  if (job.chunks().empty()) job.tell_done();
}

bool AdapterLink::advance() {
  const bool filled = fetch(), sent = forward(), ended = finish();
  return filled || sent || ended || finished_ < fetched_ || !queue_.empty();
}

bool AdapterLink::fetch() {
  if (queue_.empty() || fetched_ - finished_ == kSlots) return false;
  Slot& slot = slots_[fetched_ % kSlots];
  std::tie(slot.job, slot.chunk) = queue_.front();
  queue_.pop_front();
  const Piece& piece = slot.job->chunks()[slot.chunk];
  slot.begun = Clock::now();
  slot.due.reset();
  copy_async(
      slot.memory, piece.src,
      {piece.block.row_bytes, piece.block.rows, piece.block.row_bytes, piece.block.src_stride},
      out_.get());
  cuda::record(slot.full, out_.get());
  ++fetched_;
  return true;
}

// The port is busy from when the bytes began to leave the device, as if they were cut through.
bool AdapterLink::forward() {
  if (forwarded_ == fetched_) return false;
  Slot& slot = slots_[forwarded_ % kSlots];
  const Piece& piece = slot.job->chunks()[slot.chunk];
  if (!slot.due) {
    if (!over(cudaEventQuery(slot.full.get()))) return false;
    slot.due = slot.begun;
    if (speed_) {
      const double seconds = static_cast<double>(piece.block.bytes()) / speed_->bytes_per_second;
      slot.due =
          port_->reserve(slot.begun, from_seconds(seconds)) + from_seconds(speed_->latency_seconds);
    }
  }
  if (Clock::now() < *slot.due) return false;
  copy_async(
      piece.dst, slot.memory,
      {piece.block.row_bytes, piece.block.rows, piece.block.dst_stride, piece.block.row_bytes},
      in_.get());
  cuda::record(slot.empty, in_.get());
  ++forwarded_;
  return true;
}

bool AdapterLink::finish() {
  if (finished_ == forwarded_) return false;
  const Slot& slot = slots_[finished_ % kSlots];
  if (!over(cudaEventQuery(slot.empty.get()))) return false;
  ++finished_;
  if (slot.chunk + 1 == slot.job->chunks().size()) slot.job->tell_done();
  return true;
}

}  // namespace braid::fabric
