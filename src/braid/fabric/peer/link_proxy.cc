#include "braid/fabric/peer/link_proxy.h"

#include <algorithm>
#include <chrono>

#include "braid/fabric/block_chunks.h"

namespace braid::fabric {

using Clock = std::chrono::steady_clock;

LinkProxy::LinkProxy(int from_device, int64_t chunk_bytes,
                     std::function<void(std::exception_ptr)> on_error)
    : from_device_(from_device), chunk_bytes_(chunk_bytes), on_error_(std::move(on_error)) {}

bool LinkProxy::over(cudaError_t state) {
  if (state != cudaErrorNotReady) cuda::check_cuda(state, "a copy between GPUs");
  return state == cudaSuccess;
}

void LinkProxy::start() {
  thread_ = std::thread([this] { run(); });
}

void LinkProxy::stop() {
  std::lock_guard lock(stop_mutex_);
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

LinkProxy::Job::Job(LinkProxy& proxy) : proxy_(proxy) {
  void* words = nullptr;
  cuda::check_cuda(cudaHostAlloc(&words, 128, cudaHostAllocPortable | cudaHostAllocMapped),
                   "pinned memory of a transfer");
  words_ = static_cast<uint32_t*>(words);
  std::fill(words_, words_ + 32, 0);
  std::lock_guard lock(proxy_.mutex_);
  proxy_.jobs_.push_back(this);
}

LinkProxy::Job::~Job() {
  // What was asked for ends by itself, soon; else the proxy ends, which still knows the job.
  const auto under_way = [&] {
    return !proxy_.failed_ && !proxy_.stop_ &&
           std::atomic_ref(*asked()).load() != std::atomic_ref(*done()).load();
  };
  const auto limit = Clock::now() + std::chrono::seconds(10);
  while (under_way() && Clock::now() < limit) {
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
  std::vector<Piece> chunks;
  for (const Piece& piece : pieces) {
    for (const BlockChunk& chunk : chunks_of(piece.block, proxy_.chunk_bytes_)) {
      chunks.push_back({piece.dst + chunk.dst_offset, piece.src + chunk.src_offset, chunk.block});
    }
  }
  std::lock_guard lock(proxy_.mutex_);
  chunks_ = std::move(chunks);
}

void LinkProxy::Job::tell_done() {
  std::atomic_ref(*done()).store(started_, std::memory_order_release);
}

void LinkProxy::run() {
  using namespace std::chrono_literals;
  Clock::time_point busy = Clock::now();
  try {
    cuda::check_cuda(cudaSetDevice(from_device_), "choice of the device");
    while (!stop_) {
      const bool found = collect(), moving = advance();
      if (found || moving) {
        busy = Clock::now();
      } else if (Clock::now() - busy > 20ms) {
        rest();
        std::this_thread::sleep_for(50us);  // nothing for long: a request pays for waking up
      }
    }
  } catch (...) {
    failed_ = true;
    on_error_(std::current_exception());
  }
}

bool LinkProxy::collect() {
  std::lock_guard lock(mutex_);
  bool found = false;
  for (Job* job : jobs_) {
    if (std::atomic_ref(*job->asked()).load(std::memory_order_acquire) == job->started_) continue;
    ++job->started_;
    found = true;
    begin(*job);
  }
  return found;
}

}  // namespace braid::fabric
