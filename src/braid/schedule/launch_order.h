#pragma once

#include <array>
#include <span>
#include <vector>

#include "braid/program/stream.h"
#include "braid/program/wait.h"

namespace braid {

struct Launch;

// Order of a rank's launches: the launches known to have ended before a launch begins. Streams run
// in order, and waits join streams. A launch ends after the launches it waits for inside. A launch
// with a partial wait begins after the begin of the awaited launch. Two vector clocks per launch,
// and a clock for each phase; a query costs a comparison.
class LaunchOrder {
 public:
  LaunchOrder() = default;
  explicit LaunchOrder(std::span<const Launch> launches);

  // For each stream, launches that have ended before `launch` begins.
  const PerStream<int>& clock(int launch) const { return clock_[launch]; }

  // Knowledge about a stream's next launch, while its waits are collected.
  class Pending {
   public:
    // True if the wait is needed: without it `launch` would not have ended by then.
    bool wait_for(int launch);

   private:
    friend class LaunchOrder;
    const LaunchOrder* order_ = nullptr;
    PerStream<int> clock_{};
  };
  Pending begin(Stream stream) const;

  // The next launch in recorded order; its waits are for earlier launches.
  void add(Stream stream, std::span<const Wait> waits);

  // Launch a has ended before launch b begins.
  bool before(int a, int b) const { return ended(a, clock_[b]); }
  // For each stream, launches that have ended before launch b accesses memory in `phase`, after all
  // waits up to this phase. The launch of a partial wait starts the waiter's transfers, so these
  // transfers may begin with that launch.
  const PerStream<int>& access_clock(int b, int phase = 0) const;
  // Launch a has ended before launch b accesses memory in this phase.
  bool before_access(int a, int b, int phase = 0) const { return ended(a, access_clock(b, phase)); }
  // A launch's place in its stream.
  int position(int launch) const { return position_[launch]; }
  Stream stream(int launch) const { return stream_[launch]; }
  int size() const { return static_cast<int>(stream_.size()); }

 private:
  using Clock = PerStream<int>;  // ended launches of each stream

  bool ended(int a, const Clock& clock) const { return clock[stream(a)] > position(a); }
  static void join(Clock& clock, const Clock& other);

  std::vector<Stream> stream_;             // [launches]
  std::vector<int> position_;              // [launches]
  std::vector<Clock> clock_;               // [launches] when it begins
  std::vector<std::vector<Clock>> phase_;  // [launches][last phase + 1]; none: clock_ is phase 0's
  std::vector<Clock> end_;                 // [launches] when it ends, itself included
  PerStream<Clock> next_{};                // when the stream's next launch would begin
};

}  // namespace braid
