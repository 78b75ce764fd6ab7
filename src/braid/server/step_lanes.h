#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "braid/engine/step_plot.h"

namespace braid::server {

// The picture of a recent step, for whoever looks at a server. Only a step that follows a look is
// kept: steps that nobody looks at cost no copy.
class StepLanes {
 public:
  // The runner's last step, on `ranks` ranks; the engine's thread alone.
  void add(const Runner& runner, int ranks);
  // The last step that was kept, as SVG; empty: none yet. Any thread.
  std::string svg();

 private:
  std::atomic<bool> wanted_{true};
  std::mutex mutex_;
  std::shared_ptr<const StepPlot> last_;
};

}  // namespace braid::server
