#pragma once

#include <span>
#include <vector>

#include "braid/job/job.h"
#include "braid/program/launch_time.h"

namespace braid {

// Brings the times of a job's launches to process 0, by process 0's clock. All calls are
// collective.
class JobTimes {
 public:
  using Times = std::vector<LaunchTime>;  // [launches of a rank]; empty: the rank had no part

  // Compares the clocks: some milliseconds.
  explicit JobTimes(job::Job& job) : job_(job), ahead_(job.clocks_ahead()) {}

  // `mine` are the times of this process' ranks. At process 0 fills `all`, [ranks].
  void gather(std::vector<Times>& all, std::span<const Times> mine);

 private:
  job::Job& job_;
  const std::vector<double> ahead_;  // [processes] at process 0
};

}  // namespace braid
