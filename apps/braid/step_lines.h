#pragma once

#include <span>
#include <string>
#include <vector>

#include "braid/engine/trace/step_times.h"

namespace braid::app {

// A line of JSON for each step of a replay.
class StepLines {
 public:
  // In the order of the steps; `planning` seconds of a step are its wait for a plan, 0: unknown.
  void add(std::span<const TimedRow> rows, double seconds, double planning = 0);
  void clear() { steps_.clear(); }

  // A line for each step, with the policy's name: prompts as [tokens, keys before them], the number
  // of answers and their keys, a step's milliseconds, and the milliseconds of its wait for a plan.
  std::string text(const std::string& policy) const;

 private:
  struct Prompt {
    int64_t tokens = 0, cached = 0;
  };
  struct Line {
    std::vector<Prompt> prompts;
    int64_t answers = 0, keys = 0;
    double seconds = 0, planning = 0;
  };
  std::vector<Line> steps_;
};

// Times of another, each noted. Keeps references.
class NotedTimes : public StepTimes {
 public:
  NotedTimes(StepTimes& times, StepLines& lines) : times_(times), lines_(lines) {}
  double seconds(std::span<const TimedRow> rows) override {
    const double seconds = times_.seconds(rows);
    lines_.add(rows, seconds, times_.planning());
    return seconds;
  }

 private:
  StepTimes& times_;
  StepLines& lines_;
};

}  // namespace braid::app
