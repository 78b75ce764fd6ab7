#include "braid/fabric/peer/link_proxy.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/block_chunks.h"
#include "braid/fabric/peer/staged_link.h"
#include "braid/fabric/peer/stream_write.h"

namespace braid::fabric {
namespace {

bool over(cudaError_t state) {
  if (state != cudaErrorNotReady) cuda::check_cuda(state, "a copy between GPUs");
  return state == cudaSuccess;
}

bool complete(const cuda::OwnedEvent& event) {
  return over(cudaEventQuery(event.get()));
}

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

LinkProxy::LinkProxy(int from_device, int to_device, bool direct, std::optional<Link> speed,
                     std::shared_ptr<LinkPort> port,
                     std::function<void(std::exception_ptr)> on_error)
    : from_device_(from_device),
      direct_(direct),
      speed_(speed),
      port_(std::move(port)),
      on_error_(std::move(on_error)) {
  {
    const cuda::DeviceScope scope(from_device);
    out_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.full = cuda::make_event();
  }
  if (!direct) {
    const cuda::DeviceScope scope(to_device);
    in_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.empty = cuda::make_event();
    void* ring = nullptr;
    cuda::check_cuda(
        cudaHostAlloc(&ring, kSlots * kChunkBytes, cudaHostAllocPortable | cudaHostAllocMapped),
        "pinned memory of an emulated link");
    for (int i = 0; i < kSlots; ++i) {
      slots_[i].memory = static_cast<std::byte*>(ring) + i * kChunkBytes;
    }
  }
  thread_ = std::thread([this] { run(); });
}

void LinkProxy::stop() {
  std::lock_guard lock(stop_mutex_);
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

LinkProxy::~LinkProxy() {
  stop();
  cudaStreamSynchronize(out_.get());
  if (!direct_) cudaStreamSynchronize(in_.get());
  cudaFreeHost(slots_[0].memory);
}

std::unique_ptr<LinkProxy::Job> LinkProxy::make_job() {
  auto job = std::unique_ptr<Job>(new Job(*this));
  std::lock_guard lock(mutex_);
  jobs_.push_back(job.get());
  return job;
}

LinkProxy::Job::Job(LinkProxy& proxy) : proxy_(proxy) {
  void* words = nullptr;
  cuda::check_cuda(cudaHostAlloc(&words, 128, cudaHostAllocPortable | cudaHostAllocMapped),
                   "pinned memory of a transfer");
  words_ = static_cast<uint32_t*>(words);
  std::fill(words_, words_ + 32, 0);
}

LinkProxy::Job::~Job() {
  // What was asked for ends by itself, soon; else the proxy ends, which still knows the job.
  const auto under_way = [&] {
    return !proxy_.failed_ && !proxy_.stop_ &&
           std::atomic_ref(*asked()).load() != std::atomic_ref(*done()).load();
  };
  const auto limit = LinkPort::Clock::now() + std::chrono::seconds(10);
  while (under_way() && LinkPort::Clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (under_way()) proxy_.stop();
  {
    std::lock_guard lock(proxy_.mutex_);
    std::erase(proxy_.jobs_, this);
  }
  cudaFreeHost(words_);
}

void LinkProxy::Job::set(const std::vector<Piece>& pieces) {
  constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();
  std::vector<Piece> chunks;
  for (const Piece& piece : pieces) {
    for (const BlockChunk& chunk : chunks_of(piece.block, proxy_.direct_ ? kWhole : kChunkBytes)) {
      chunks.push_back({piece.dst + chunk.dst_offset, piece.src + chunk.src_offset, chunk.block});
    }
  }
  std::lock_guard lock(proxy_.mutex_);
  chunks_ = std::move(chunks);
}

void LinkProxy::run() {
  using namespace std::chrono_literals;
  Clock::time_point busy = Clock::now();
  try {
    cuda::check_cuda(cudaSetDevice(from_device_), "choice of the device");
    while (!stop_) {
      if (step()) {
        busy = Clock::now();
      } else if (Clock::now() - busy > 20ms) {
        if (direct_) over(cudaStreamQuery(out_.get()));  // or reports what failed
        std::this_thread::sleep_for(50us);  // nothing for long: a request pays for waking up
      }
    }
  } catch (...) {
    failed_ = true;
    on_error_(std::current_exception());
  }
}

bool LinkProxy::step() {
  if (direct_) return collect();
  const bool found = collect(), filled = fetch(), sent = forward(), ended = finish();
  return found || filled || sent || ended || finished_ < fetched_ || !queue_.empty();
}

bool LinkProxy::collect() {
  std::lock_guard lock(mutex_);
  bool found = false;
  for (Job* job : jobs_) {
    if (std::atomic_ref(*job->asked()).load(std::memory_order_acquire) == job->started_) continue;
    ++job->started_;
    found = true;
    if (direct_) {
      carry_out(*job);
      continue;
    }
    for (size_t i = 0; i < job->chunks_.size(); ++i) queue_.emplace_back(job, i);
    if (job->chunks_.empty()) {
      std::atomic_ref(*job->done()).store(job->started_, std::memory_order_release);
    }
  }
  return found;
}

// The stream tells the device itself: no host looks for the copies' end.
void LinkProxy::carry_out(Job& job) {
  for (const Piece& piece : job.chunks_) {
    copy_async(piece.dst, piece.src, piece.block, out_.get());
  }
  stream_write(out_.get(), reinterpret_cast<uint64_t*>(job.done()), job.started_);
}

bool LinkProxy::fetch() {
  if (queue_.empty() || fetched_ - finished_ == kSlots) return false;
  Slot& slot = slots_[fetched_ % kSlots];
  std::tie(slot.job, slot.chunk) = queue_.front();
  queue_.pop_front();
  const Piece& piece = slot.job->chunks_[slot.chunk];
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
bool LinkProxy::forward() {
  if (forwarded_ == fetched_) return false;
  Slot& slot = slots_[forwarded_ % kSlots];
  if (!slot.due) {
    if (!complete(slot.full)) return false;
    slot.due = slot.begun;
    if (speed_) {
      const int64_t bytes = slot.job->chunks_[slot.chunk].block.bytes();
      const double seconds = static_cast<double>(bytes) / speed_->bytes_per_second;
      slot.due =
          port_->reserve(slot.begun, from_seconds(seconds)) + from_seconds(speed_->latency_seconds);
    }
  }
  if (Clock::now() < *slot.due) return false;
  const Piece& piece = slot.job->chunks_[slot.chunk];
  copy_async(
      piece.dst, slot.memory,
      {piece.block.row_bytes, piece.block.rows, piece.block.dst_stride, piece.block.row_bytes},
      in_.get());
  cuda::record(slot.empty, in_.get());
  ++forwarded_;
  return true;
}

bool LinkProxy::finish() {
  if (finished_ == forwarded_) return false;
  const Slot& slot = slots_[finished_ % kSlots];
  if (!complete(slot.empty)) return false;
  ++finished_;
  if (slot.chunk + 1 == slot.job->chunks_.size()) {
    std::atomic_ref(*slot.job->done()).store(slot.job->started_, std::memory_order_release);
  }
  return true;
}

}  // namespace braid::fabric
