// A get whose data leave a peer just when that peer signals: neither is lost.
#include <atomic>
#include <thread>

#include "dist/fabric_testing.h"

namespace braid::fabric {
namespace {

TEST(LinkJitter, AGetBesideASignalCompletes) {
  constexpr uint64_t kRounds = 1500, kFailed = ~uint64_t{0};
  LocalFabric world({.ranks = 2,
                     .threads_per_rank = 2,
                     .deadline = std::chrono::seconds(2),
                     .links = {.jitter = Jitter{1, 0}}});
  run_ranks(world, [&](Endpoint& endpoint) {
    const auto data = endpoint.allocate<uint64_t>(8, "data");
    const auto signals = endpoint.allocate<Signal>(2, "signals");
    const Tag tag = endpoint.tag("jitter");
    const int peer = 1 - endpoint.rank();
    data.local()[0] = 100 + static_cast<uint64_t>(endpoint.rank());
    std::atomic<uint64_t> round{0};
    // Signals once a round, a little later each time; then nothing moves until the next one.
    std::thread signaller([&] {
      for (uint64_t i = 1; i <= kRounds; ++i) {
        while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
        if (round.load(std::memory_order_acquire) == kFailed) return;
        for (uint64_t spin = 0; spin < i * 13 % 512; ++spin) spin_pause();
        endpoint.signal(signals.at(1), peer, SignalOp::add, 1, tag);
      }
    });
    std::exception_ptr error;
    try {
      for (uint64_t i = 1; i <= kRounds; ++i) {
        endpoint.signal(signals.at(0), peer, SignalOp::add, 1, tag);
        endpoint.wait(signals.at(0), i, {.tag = tag, .from = peer});
        round.store(i, std::memory_order_release);
        uint64_t got = 1;
        endpoint.get(&got, data.at(), peer, sizeof(got), tag);
        EXPECT_EQ(got, 100 + static_cast<uint64_t>(peer));
        endpoint.wait(signals.at(1), i, {.tag = tag, .from = peer});
      }
    } catch (...) {
      error = std::current_exception();
      round.store(kFailed, std::memory_order_release);
    }
    signaller.join();
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace
}  // namespace braid::fabric
