#include "braid/fabric/peer/adapter_link.h"

#include <fmt/format.h>

#include "braid/fabric/peer/stream_write.h"

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

AdapterLink::AdapterLink(const Sender& sender, int to_device, std::optional<Link> speed,
                         std::shared_ptr<LinkPort> port)
    : LinkProxy(sender, StagingRing::kSlotBytes),
      speed_(speed),
      port_(std::move(port)),
      ring_(sender.device, to_device, kSlots) {
  start();
}

AdapterLink::~AdapterLink() {
  stop();
}

void AdapterLink::begin(Job& job) {
  for (size_t i = 0; i < job.chunks().size(); ++i) queue_.emplace_back(&job, i);
  if (job.chunks().empty()) job.tell_done();
}

bool AdapterLink::advance() {
  const bool filled = fetch(), sent = forward(), ended = finish();
  return filled || sent || ended || finished_ < fetched_ || !queue_.empty();
}

void AdapterLink::drain() {
  cudaStreamSynchronize(ring_.out());
  cudaStreamSynchronize(ring_.in());
}

std::string AdapterLink::progress() const {
  return fmt::format(", {} chunks of all transfers begun, {} sent on, {} there", fetched_.load(),
                     forwarded_.load(), finished_.load());
}

bool AdapterLink::fetch() {
  if (queue_.empty() || fetched_ - finished_ == kSlots) return false;
  const size_t slot = fetched_ % kSlots;
  Passage& passage = passages_[slot];
  std::tie(passage.job, passage.chunk) = queue_.front();
  queue_.pop_front();
  passage.begun = Clock::now();
  passage.due.reset();
  const Piece& piece = passage.piece();
  const InCall call(*this, "a copy out of the GPU");
  ring_.fill(slot, piece.src, piece.block);
  cuda::record(ring_.full(slot), ring_.out());
  ++fetched_;
  return true;
}

// The port is busy from when the bytes began to leave the device, as if they were cut through.
bool AdapterLink::forward() {
  if (forwarded_ == fetched_) return false;
  const size_t slot = forwarded_ % kSlots;
  Passage& passage = passages_[slot];
  const Piece& piece = passage.piece();
  if (!passage.due) {
    const InCall call(*this, "a question for a copy's end");
    if (!over(cudaEventQuery(ring_.full(slot).get()))) return false;
    passage.due = passage.begun;
    if (speed_) {
      const double seconds = static_cast<double>(piece.block.bytes()) / speed_->bytes_per_second;
      passage.due = port_->reserve(passage.begun, from_seconds(seconds)) +
                    from_seconds(speed_->latency_seconds);
    }
  }
  if (Clock::now() < *passage.due) return false;
  const InCall call(*this, "a copy into the GPU");
  ring_.drain(slot, piece.dst, piece.block);
  if (passage.chunk + 1 == passage.job->chunks().size()) {
    stream_write(ring_.in(), reinterpret_cast<uint64_t*>(passage.job->done()),
                 passage.job->answer());
  }
  cuda::record(ring_.empty(slot), ring_.in());
  ++forwarded_;
  return true;
}

bool AdapterLink::finish() {
  if (finished_ == forwarded_) return false;
  const size_t slot = finished_ % kSlots;
  const InCall call(*this, "a question for a copy's end");
  if (!over(cudaEventQuery(ring_.empty(slot).get()))) return false;
  ++finished_;
  return true;
}

}  // namespace braid::fabric
