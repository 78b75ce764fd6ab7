#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "braid/schedule/launch_order.h"
#include "braid/schedule/schedule.h"

namespace braid {

// A rank's Program and Schedule, as verify()'s rules read both.
class RankView {
 public:
  RankView(const Program& program, const Schedule& schedule, int rank, int ranks);

  const Program& program() const { return program_; }
  const Schedule& schedule() const { return schedule_; }
  const LaunchOrder& order() const { return order_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int launches() const { return static_cast<int>(schedule_.launches.size()); }
  int micro_batches() const { return static_cast<int>(schedule_.micro_batches.size()); }
  const Launch& launch(int i) const { return schedule_.launches[i]; }
  const Op& op(int i) const { return schedule_.op(program_, launch(i)); }
  // Schedule::for_each_call of launch i.
  template <class F>
  void for_each_call(int i, F&& f) const {
    schedule_.for_each_call(program_, launch(i), std::forward<F>(f));
  }
  // The launch of an op in a micro-batch.
  int launch_of(int op, int micro_batch) const { return launch_of_[at(op, micro_batch)]; }

  // Both need launches in range; launch_of needs each op once.
  void find_order() { order_ = LaunchOrder(schedule_.launches); }
  // Fails if an op of a micro-batch is in no launch, or in two.
  void find_launches();

  // "launch 7 (pull at 'layers.0.attn.ring1')"
  std::string name(int launch) const;
  [[noreturn]] void refuse(const Op& op, int micro_batch, std::string_view rule) const;

 private:
  size_t at(int index, int micro_batch) const {
    return (static_cast<size_t>(index) * schedule_.micro_batches.size()) +
           static_cast<size_t>(micro_batch);
  }

  const Program& program_;
  const Schedule& schedule_;
  const int rank_;
  const int ranks_;
  LaunchOrder order_;
  std::vector<int> launch_of_;  // [ops, micro-batches]
};

}  // namespace braid
