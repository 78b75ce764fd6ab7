#include "braid/fabric/local/link_engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid::fabric {
namespace {

constexpr int64_t kCopyBytes = 256 << 10;
// A put up to this size is copied by its caller: waking the engine's thread costs as much.
constexpr int64_t kBufferedBytes = 64 << 10;
// A sleeper is woken this long before its data arrive, since waking takes as long.
constexpr std::chrono::microseconds kRingAhead{10};
// The engine's own sleeps are set early by how late they have been, up to this.
constexpr Clock::duration kMostLead = std::chrono::microseconds(50);

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

// Bytes [begin, end) of a block, rows in order.
void copy_bytes(const Block& block, std::byte* dst, const std::byte* src, int64_t begin,
                int64_t end) {
  while (begin < end) {
    const int64_t row = begin / block.row_bytes;
    const int64_t column = begin % block.row_bytes;
    const int64_t bytes = std::min(block.row_bytes - column, end - begin);
    std::memcpy(dst + row * block.dst_stride + column, src + row * block.src_stride + column,
                bytes);
    begin += bytes;
  }
}

}  // namespace

void deliver(Signal& slot, SignalOp op, uint64_t value, Doorbell& owner) {
  std::atomic_ref<uint64_t> counter(slot.value);
  if (op == SignalOp::set) {
    counter.store(value, std::memory_order_seq_cst);
  } else {
    counter.fetch_add(value, std::memory_order_seq_cst);
  }
  owner.ring();
}

LinkEngine::LinkEngine(const LinkModel& model, int world)
    : model_(model),
      world_(world),
      pairs_(world * world),
      ports_(2 * world),
      random_(model.jitter ? model.jitter->seed : 0),
      thread_([this] { run(); }) {}

LinkEngine::~LinkEngine() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

LinkEngine::Port& LinkEngine::port(int rank, LinkClass link) {
  if (link == LinkClass::machine) return ports_[rank];
  const int devices = world_ / model_.machines;
  return ports_[world_ + (model_.shared_port ? rank / devices : rank)];
}

void LinkEngine::push(Clock::time_point at, Step step, std::shared_ptr<Job> job) {
  const bool first = events_.empty() || at < events_.top().at;
  events_.push({at, step, std::move(job)});
  if (first) changed_.notify_one();
}

void LinkEngine::submit(const std::shared_ptr<Job>& job) {
  const int64_t bytes = job->block.bytes();
  if (job->kind == Job::Kind::put && bytes <= kBufferedBytes && !model_.jitter) {
    copy_bytes(job->block, job->dst, job->src, 0, bytes);
    job->copied = bytes;
    job->complete.store(true, std::memory_order_relaxed);
  }
  std::lock_guard lock(mutex_);
  job->order = next_order_++;
  const Clock::time_point now = Clock::now();
  if (job->kind == Job::Kind::get) {  // the request travels first
    const auto& speed = model_.speed(link(*job));
    push(now + seconds(speed ? speed->latency_seconds : 0), Step::request, job);
    return;
  }
  job->ready = now;
  pair(*job).waiting.push_back(job);
  dispatch(now);
}

void LinkEngine::cancel(Job& job) {
  std::unique_lock lock(mutex_);
  job.cancelled = true;
  copied_.wait(lock, [&] { return !job.copying; });
}

// Starts everything that can start by `now`, the oldest first.
void LinkEngine::dispatch(Clock::time_point now) {
  while (true) {
    Pair* best = nullptr;
    Clock::time_point best_start;
    for (Pair& pair : pairs_) {
      while (!pair.waiting.empty() && pair.waiting.front()->cancelled) pair.waiting.pop_front();
      if (pair.waiting.empty()) continue;
      const Job& job = *pair.waiting.front();
      Clock::time_point start = std::max(job.ready, pair.sent);
      if (job.kind != Job::Kind::signal) {
        const LinkClass l = link(job);
        start = std::max({start, port(job.from, l).out_free, port(job.to, l).in_free});
      }
      if (start > now) continue;
      if (best == nullptr || job.order < best->waiting.front()->order) {
        best = &pair;
        best_start = start;
      }
    }
    if (best == nullptr) return;
    const std::shared_ptr<Job> job = std::move(best->waiting.front());
    best->waiting.pop_front();
    start(job, best_start);
  }
}

void LinkEngine::start(const std::shared_ptr<Job>& job, Clock::time_point at) {
  const LinkClass l = link(*job);
  const auto& speed = model_.speed(l);
  Clock::duration busy{0};
  if (speed) busy = seconds(static_cast<double>(job->block.bytes()) / speed->bytes_per_second);
  Clock::duration delay{0};
  double copy_share = 0;
  if (model_.jitter) {
    std::uniform_real_distribution<double> unit(0, 1);
    if (unit(random_) < 0.5) delay = seconds(unit(random_) * model_.jitter->max_delay_seconds);
    copy_share = unit(random_);
  }
  job->copy_from = at + std::chrono::duration_cast<Clock::duration>(copy_share * delay);
  job->sent = at + busy + delay;
  job->arrival = job->sent + seconds(speed ? speed->latency_seconds : 0);
  Pair& p = pair(*job);
  job->arrival = std::max(job->arrival, p.arrival);
  p.sent = job->sent;
  p.arrival = job->arrival;
  if (job->kind != Job::Kind::signal) {
    port(job->from, l).out_free = at + busy;
    port(job->to, l).in_free = at + busy;
    push(at + busy, Step::ports_free, job);
  }
  if (job->sent != at + busy) push(job->sent, Step::ports_free, job);

  if (job->complete.load(std::memory_order_relaxed)) return;
  if (job->kind != Job::Kind::signal) push(job->copy_from, Step::copy, job);
  const Clock::time_point done = job->kind == Job::Kind::put ? job->sent : job->arrival;
  if (job->kind != Job::Kind::put) push(done - kRingAhead, Step::ring_ahead, job);
  if (job->kind == Job::Kind::signal) push(done, Step::finish, job);
}

void LinkEngine::run() {
  prctl(PR_SET_TIMERSLACK, 1);
  Clock::duration lead{0};
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (events_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point at = events_.top().at;
    const Clock::time_point now = Clock::now();
    if (at > now + lead) {
      const Clock::time_point until = at - lead;
      if (changed_.wait_until(lock, until) == std::cv_status::timeout) {
        const Clock::duration late = Clock::now() - until;
        lead += (std::min(late, kMostLead) - lead) / 8;
      }
    } else if (at > now) {
      lock.unlock();
      spin_pause();  // to yield could cost a whole time slice
      lock.lock();
    } else {
      const Event event = events_.top();
      events_.pop();
      handle(lock, event);
    }
  }
}

void LinkEngine::handle(std::unique_lock<std::mutex>& lock, const Event& event) {
  Job& job = *event.job;
  switch (event.step) {
    case Step::request:
      job.ready = event.at;
      pair(job).waiting.push_back(event.job);
      // By the clock: a signal submitted meanwhile may have taken its turn after event.at, and no
      // event follows a signal without delay.
      dispatch(Clock::now());
      break;
    case Step::ports_free:
      dispatch(event.at);
      break;
    case Step::copy:
      if (!job.cancelled) copy_some(lock, event.job);
      break;
    case Step::ring_ahead:
      job.doorbell->ring();
      break;
    case Step::finish:
      if (!job.cancelled) finish(job);
      break;
  }
}

// The next piece, and the due time of the piece after.
void LinkEngine::copy_some(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Job>& job) {
  const int64_t bytes = job->block.bytes();
  const int64_t end = std::min(bytes, job->copied + kCopyBytes);
  job->copying = true;
  lock.unlock();
  copy_bytes(job->block, job->dst, job->src, job->copied, end);
  lock.lock();
  job->copying = false;
  copied_.notify_all();
  job->copied = end;
  if (end == bytes) {
    push(job->kind == Job::Kind::put ? job->sent : job->arrival, Step::finish, job);
  } else {
    const double share = static_cast<double>(end) / static_cast<double>(bytes);
    push(job->copy_from +
             std::chrono::duration_cast<Clock::duration>(share * (job->sent - job->copy_from)),
         Step::copy, job);
  }
}

void LinkEngine::finish(Job& job) {
  if (job.kind == Job::Kind::signal) {
    deliver(*job.slot, job.op, job.value, *job.doorbell);
    return;
  }
  job.complete.store(true, std::memory_order_seq_cst);
  job.doorbell->ring();
}

}  // namespace braid::fabric
