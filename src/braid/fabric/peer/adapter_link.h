#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <optional>

#include "braid/fabric/peer/link_proxy.h"
#include "braid/fabric/peer/staging_ring.h"

namespace braid::fabric {

// The outgoing port of a rank's emulated machine, shared by the rank's links: transfers take turns.
class LinkPort {
 public:
  using Clock = std::chrono::steady_clock;
  // Departure time for a transfer with duration `busy` that could begin at `ready`.
  Clock::time_point reserve(Clock::time_point ready, Clock::duration busy);

 private:
  std::mutex mutex_;
  Clock::time_point free_at_{};
};

// A network adapter between emulated machines: device -> pinned host memory -> device in chunks
// through a ring, so that both copies run at once, at the link's speed if one is given.
class AdapterLink final : public LinkProxy {
 public:
  AdapterLink(const Sender& sender, int to_device, std::optional<Link> speed,
              std::shared_ptr<LinkPort> port);
  ~AdapterLink() override;

 private:
  static constexpr size_t kSlots = 8;
  using Clock = LinkPort::Clock;
  struct Passage {  // of a chunk through a slot
    Job* job = nullptr;
    size_t chunk = 0;
    Clock::time_point begun{};
    std::optional<Clock::time_point> due;
    const Piece& piece() const { return job->chunks()[chunk]; }
  };

  void begin(Job& job) override;
  bool advance() override;
  void drain() override;
  std::string progress() const override;
  bool fetch();    // device -> host
  bool forward();  // host -> device
  bool finish();

  const std::optional<Link> speed_;
  const std::shared_ptr<LinkPort> port_;
  StagingRing ring_;
  std::array<Passage, kSlots> passages_;                           // [slots]
  std::atomic<uint64_t> fetched_{0}, forwarded_{0}, finished_{0};  // chunks so far
  std::deque<std::pair<Job*, size_t>> queue_;                      // chunks to fetch
};

}  // namespace braid::fabric
