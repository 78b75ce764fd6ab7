#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <thread>
#include <vector>

#include "braid/fabric/fabric.h"
#include "braid/fabric/local/doorbell.h"

namespace braid::fabric {

// Applies a signal to a slot in a rank's memory and wakes the slot's waiters.
void deliver(Signal& slot, SignalOp op, uint64_t value, Doorbell& owner);

// A world's emulated links: moves bytes and signals as NICs would, behind the caller's back. Each
// rank (or machine) has a port that sends and receives a transfer at a time; the oldest transfer
// with two free ports goes next, and transfers between a pair of ranks keep their order. A single
// thread serves all links; it sleeps nearly always and copies in pieces spread over a transfer's
// modelled time. Work delayed by the machine is caught up, so bandwidths hold on average.
class LinkEngine {
 public:
  // One transfer or signal. Bytes go from rank `from` to rank `to`.
  struct Job {
    enum class Kind : uint8_t { put, get, signal } kind = Kind::put;
    int from = 0;
    int to = 0;
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    Block block;
    Signal* slot = nullptr;  // of rank `to`
    SignalOp op = SignalOp::set;
    uint64_t value = 0;
    Doorbell* doorbell = nullptr;      // the waiting rank's: the issuer's, or the signal's target's
    std::shared_ptr<Segment> segment;  // keeps the remote end alive
    std::atomic<bool> complete{false};

   private:
    friend class LinkEngine;
    uint64_t order = 0;
    Clock::time_point ready;      // when it may start
    Clock::time_point copy_from;  // first byte leaves
    Clock::time_point sent;       // last byte has left
    Clock::time_point arrival;    // last byte is there
    int64_t copied = 0;           // bytes
    bool copying = false;
    bool cancelled = false;
  };

  LinkEngine(const LinkModel& model, int world);
  ~LinkEngine();
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  // May complete a small put at once.
  void submit(const std::shared_ptr<Job>& job);
  // Afterwards the engine does not touch the job's memory any more.
  void cancel(Job& job);

 private:
  enum class Step : uint8_t { request, ports_free, copy, ring_ahead, finish };
  struct Event {
    Clock::time_point at;
    Step step;
    std::shared_ptr<Job> job;                   // for equal times, in the order of submission
    bool operator<(const Event& other) const {  // priority_queue: the earliest on top
      return at != other.at ? at > other.at : job->order > other.job->order;
    }
  };
  // From one rank to another.
  struct Pair {
    std::deque<std::shared_ptr<Job>> waiting;
    Clock::time_point sent;     // by the last that has started
    Clock::time_point arrival;  // the transfer's
  };
  struct Port {
    Clock::time_point out_free;
    Clock::time_point in_free;
  };

  void run();
  void handle(std::unique_lock<std::mutex>& lock, const Event& event);
  void copy_some(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Job>& job);
  void finish(Job& job);
  void dispatch(Clock::time_point now);
  void start(const std::shared_ptr<Job>& job, Clock::time_point at);
  void push(Clock::time_point at, Step step, std::shared_ptr<Job> job);
  LinkClass link(const Job& job) const { return model_.between(job.from, job.to, world_); }
  Pair& pair(const Job& job) { return pairs_[job.from * world_ + job.to]; }
  Port& port(int rank, LinkClass link);

  const LinkModel model_;
  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable copied_;
  std::priority_queue<Event> events_;
  std::vector<Pair> pairs_;  // [world, world]
  std::vector<Port> ports_;  // [2, world]: within the machine, outwards
  std::mt19937_64 random_;
  uint64_t next_order_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace braid::fabric
