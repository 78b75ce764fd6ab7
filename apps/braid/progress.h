#pragma once

#include <chrono>
#include <string>

namespace braid::app {

// A line on standard error about the progress of long work, if standard error is a terminal.
// Nothing is shown in the first second, and the line disappears afterwards.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& what);
  // Shown at once: before work without known progress.
  void announce(const std::string& what);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  const bool terminal_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace braid::app
