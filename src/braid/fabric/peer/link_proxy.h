#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"

namespace braid::fabric {

// The way out of a rank's emulated machine, shared by its links: transfers take turns.
class LinkPort {
 public:
  using Clock = std::chrono::steady_clock;
  // When a transfer of `busy` that could begin at `ready` has left.
  Clock::time_point reserve(Clock::time_point ready, Clock::duration busy);

 private:
  std::mutex mutex_;
  Clock::time_point free_at_{};
};

// The way from one GPU to another, a direct one to all of its machine: a host thread that carries
// out transfers when a kernel asks for them, by copy engines. No SM takes part, so that what
// computes keeps all of them. Between emulated machines it is the network adapter: device -> pinned
// host memory -> device in chunks through a ring, so that both copies run at once, at the speed of
// the link. A `direct` one copies from GPU to GPU, within a machine, in a stream that also says
// when they are done: a copy that stands in a stream and waits can hold up other ranks' copies, in
// a hardware queue that they share.
class LinkProxy {
 public:
  // `on_error` gets what a copy failed with; the proxy then does nothing more. A direct one has no
  // use for `to_device`, speed and port.
  LinkProxy(int from_device, int to_device, bool direct, std::optional<Link> speed,
            std::shared_ptr<LinkPort> port, std::function<void(std::exception_ptr)> on_error);
  ~LinkProxy();
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  struct Piece {
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
    Block block;
  };

  // A transfer that can be asked for again and again, one at a time: who asks adds one to asked(),
  // with release at system scope, and has the data once done() is as much. Both are pinned words.
  // Made and destroyed while no device waits. It lives no longer than the proxy.
  class Job {
   public:
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    uint32_t* asked() const { return words_; }
    uint32_t* done() const { return words_ + 16; }
    // What it moves from now on. Only while it is not asked for.
    void set(const std::vector<Piece>& pieces);

   private:
    friend class LinkProxy;
    explicit Job(LinkProxy& proxy);
    LinkProxy& proxy_;
    uint32_t* words_ = nullptr;  // pinned: asked, and a cache line later done
    uint32_t started_ = 0;
    std::vector<Piece> chunks_;  // of a direct transfer whole pieces
  };
  std::unique_ptr<Job> make_job();

 private:
  static constexpr int64_t kChunkBytes = 1 << 20;
  static constexpr int kSlots = 8;
  using Clock = LinkPort::Clock;
  struct Slot {
    std::byte* memory = nullptr;  // pinned, of the ring
    cuda::OwnedEvent full;
    cuda::OwnedEvent empty;
    Job* job = nullptr;
    size_t chunk = 0;
    Clock::time_point begun{};
    std::optional<Clock::time_point> due;
  };

  void run();
  void stop();  // whatever is under way
  bool step();  // whether there was something to do
  bool collect();
  void carry_out(Job& job);  // a direct transfer
  bool fetch();              // device -> host
  bool forward();            // host -> device
  bool finish();

  const int from_device_;
  const bool direct_;
  const std::optional<Link> speed_;
  const std::shared_ptr<LinkPort> port_;
  const std::function<void(std::exception_ptr)> on_error_;
  cuda::OwnedStream out_;  // of from_device
  cuda::OwnedStream in_;   // of to_device
  std::array<Slot, kSlots> slots_;
  uint64_t fetched_ = 0, forwarded_ = 0, finished_ = 0;  // chunks so far
  std::deque<std::pair<Job*, size_t>> queue_;            // chunks to fetch
  std::mutex mutex_;                                     // of jobs_ and what a Job holds
  std::vector<Job*> jobs_;
  std::atomic<bool> stop_{false};
  std::mutex stop_mutex_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace braid::fabric
