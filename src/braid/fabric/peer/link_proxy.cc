#include "braid/fabric/peer/link_proxy.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/fabric/block_chunks.h"

namespace braid::fabric {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

LinkProxy::LinkProxy(const Sender& sender, int64_t chunk_bytes)
    : sender_(sender), chunk_bytes_(chunk_bytes) {}

bool LinkProxy::over(cudaError_t state) {
  if (state != cudaErrorNotReady) cuda::check_cuda(state, "a copy between GPUs");
  return state == cudaSuccess;
}

void LinkProxy::start() {
  moves_ = true;
  mover_ = std::thread([this] { move(); });
  watcher_ = std::thread([this] { watch(); });
}

void LinkProxy::stop() {
  stop_ = true;
  for (std::thread* thread : {&mover_, &watcher_}) {
    if (thread->joinable()) thread->join();
  }
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
  while (in_use()) std::this_thread::sleep_for(20us);  // at most until its deadline
  {
    std::lock_guard lock(proxy_.mutex_);
    std::erase(proxy_.jobs_, this);
  }
  cudaFreeHost(words_);
}

void LinkProxy::Job::ask() {
  std::atomic_ref(*asked()).store(1, std::memory_order_release);
}

bool LinkProxy::Job::take_answer() {
  const std::atomic_ref<uint32_t> answered(*done());
  if (answered.load(std::memory_order_acquire) == 0) return false;
  answered.store(0);
  return true;
}

bool LinkProxy::Job::in_use() const {
  std::lock_guard lock(proxy_.mutex_);
  // Once the job has failed an answer does not say that the first thread is through with this.
  return proxy_.moves_ && (is_asked() || is_under_way() || proxy_.sender_.error.is_set());
}

bool LinkProxy::Job::is_asked() const {
  return std::atomic_ref(*asked()).load(std::memory_order_acquire) != 0;
}

bool LinkProxy::Job::is_under_way() const {
  return std::atomic_ref(done()[1]).load(std::memory_order_acquire) != started_;
}

void LinkProxy::Job::take() {
  ++started_;
  std::atomic_ref(*asked()).store(0);
}

int64_t LinkProxy::Job::bytes() const {
  int64_t sum = 0;
  for (const Piece& chunk : chunks_) sum += chunk.block.bytes();
  return sum;
}

void LinkProxy::Job::set(const std::vector<Piece>& pieces) {
  std::vector<Piece> chunks;
  const auto cut = [&](const Piece& piece, int64_t most) {
    for (const BlockChunk& chunk : chunks_of(piece.block, most)) {
      chunks.push_back({piece.dst + chunk.dst_offset, piece.src + chunk.src_offset, chunk.block});
    }
  };
  for (const Piece& piece : pieces) cut(piece, proxy_.chunk_bytes_);
  // The last chunk's second copy hides under no other's first: it is short.
  if (chunks.size() > 1) {
    const Piece last = chunks.back();
    chunks.pop_back();
    cut(last, proxy_.chunk_bytes_ / 4);
  }
  std::lock_guard lock(proxy_.mutex_);
  chunks_ = std::move(chunks);
}

void LinkProxy::Job::tell_done() {
  std::atomic_ref(*reinterpret_cast<uint64_t*>(done())).store(answer(), std::memory_order_release);
}

void LinkProxy::move() {
  try {
    Clock::time_point busy = Clock::now();
    cuda::check_cuda(cudaSetDevice(sender_.device), "choice of the device");
    while (!stop_ && !sender_.error.is_set()) {
      const bool found = collect(), moving = advance();
      if (found || moving) {
        busy = Clock::now();
      } else if (Clock::now() - busy > 20ms) {
        rest();
        std::this_thread::sleep_for(50us);  // nothing for long: a request pays for waking up
      }
    }
  } catch (...) {
    sender_.error.set(sender_.rank, std::current_exception());
  }
  drain();
  moves_ = false;
}

bool LinkProxy::collect() {
  taken_.clear();
  {
    std::lock_guard lock(mutex_);
    // A request that comes between two looks may follow another that the look had passed: two equal
    // looks have no such gap.
    size_t seen = 0;
    do {
      seen = taken_.size();
      taken_.clear();
      for (Job* job : jobs_) {
        if (job->is_asked() && !job->is_under_way()) taken_.push_back(job);
      }
    } while (taken_.size() != seen);
    for (Job* job : taken_) job->take();
  }
  for (Job* job : taken_) begin(*job);
  return !taken_.empty();
}

void LinkProxy::watch() {
  while (!stop_) {
    const bool failed = sender_.error.is_set();
    try {
      failed ? answer_all() : check_deadlines();
    } catch (...) {
      sender_.error.set(sender_.rank, std::current_exception());
    }
    std::this_thread::sleep_for(failed ? 50us : 5000us);
  }
}

void LinkProxy::check_deadlines() {
  std::lock_guard lock(mutex_);
  for (Job* job : jobs_) {
    // Requests are numbered; this is the request that waits to begin, or is under way.
    const bool asked = job->is_asked();
    if (!asked && !job->is_under_way()) continue;
    const uint32_t request = job->started_ + asked;
    if (request != job->seen_) {
      job->seen_ = request;
      job->seen_at_ = Clock::now();
    } else if (Clock::now() - job->seen_at_ > sender_.deadline) {
      fail(ErrorCode::kDeadline, "after {:.3g} s {}",
           std::chrono::duration<double>(sender_.deadline).count(), describe(*job));
    }
  }
}

std::string LinkProxy::describe(const Job& job) const {
  const char* const call = in_call_;
  return fmt::format("a transfer of {} bytes from cuda:{}{} has not ended: {}{}{}", job.bytes(),
                     sender_.device, job.name_.empty() ? "" : fmt::format(", {},", job.name_),
                     job.is_asked() ? "not begun" : "under way", progress(),
                     call == nullptr ? "" : fmt::format(", held up in {}", call));
}

std::string LinkProxy::describe_open() {
  std::string open;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return open;
  for (const Job* job : jobs_) {
    if (!job->is_asked() && !job->is_under_way()) continue;
    open += fmt::format("; {}", describe(*job));
  }
  return open;
}

void LinkProxy::answer_all() {
  std::lock_guard lock(mutex_);
  for (Job* job : jobs_) {
    if (job->is_asked()) job->take();
    if (job->is_under_way()) job->tell_done();
  }
}

}  // namespace braid::fabric
