#pragma once

#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/program/launch_time.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/expert_rows.h"
#include "braid/schedule/schedule.h"

namespace braid {

// Times of a rank's launches, measured or simulated.
struct RankTimes {
  const Program* program = nullptr;
  const Schedule* schedule = nullptr;
  std::span<const LaunchTime> times;  // [launches]
  std::span<const ExpertRows> experts = {};
};

// The group of a launch if the group ran as one launch in these times; else null.
const LaunchGroup* ran_as_one(const RankTimes& rank, int launch);

// A step's timeline on all ranks, measured or simulated, for trace files.
struct Timeline {
  std::string title;             // "measured", "simulated on h100"
  std::vector<RankTimes> ranks;  // begins need not be at 0
  std::vector<Work> works;       // [micro-batches]
};

// A rank's activity beside launches: "step 12".
struct TraceSpan {
  std::string name;
  double begin = 0;  // seconds of the launches' clock
  double end = 0;
};

// Writes Chrome's trace events as JSON, which Perfetto and chrome://tracing open: a process per
// rank, a thread per stream, a slice per launch ("layers.3.mlp linear", "relay") with its kernel,
// operations, bytes, wire bytes, micro-batch and load of experts, the wire bytes sent so far as a
// counter, and under otherData the steps' seconds and each stream's busy time. docs/simulator.md
// has the fields.
class TraceWriter {
 public:
  // `out` outlives the writer.
  explicit TraceWriter(std::ostream& out);
  // To a file, as FILE.part until finish() or the end of the writer; fails with kResource, naming
  // the path and the cause.
  explicit TraceWriter(const std::string& path);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Adds a step, at its own times after the first step's begin. The last ranks may have no part.
  void add(const Timeline& timeline);
  // Spans of a rank in a separate lane, below the streams: "host", "device steps".
  void add(int rank, const std::string& lane, std::span<const TraceSpan> spans);
  // A text under otherData.
  void remark(const std::string& key, const std::string& text);
  // Writes the end behind the last step; fails as the constructor does.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A trace of a single step.
void write_trace(std::ostream& out, const Timeline& timeline);
void write_trace(const std::string& path, const Timeline& timeline);

// Seconds from the first begin to the last end, over all ranks.
double span_of(const Timeline& timeline);

}  // namespace braid
