#pragma once

#include <functional>
#include <string>
#include <vector>

#include "braid/schedule/profile.h"
#include "braid/tensor/dtype.h"

namespace braid {

struct CalibrateConfig {
  int threads = 0;            // on the compute stream; 0: every usable core
  std::vector<DType> dtypes;  // of weights; empty: all
  int64_t most_rows = 512;    // in a step; larger steps are priced alike
  std::function<void(const std::string& what)> progress;  // may be empty
};

// Measures this machine with the CPU kernels: steps of a small decoder, with launches timed at
// several sizes on cold weights and KV cache, chains of tiny launches, reads of memory, and
// all-reduces of two ranks in this process. Takes some seconds and about 200 MB. Other load on the
// machine distorts the result.
Profile calibrate_cpu(const CalibrateConfig& config);

}  // namespace braid
