#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/handles.h"

namespace braid::cuda {

// Median microseconds of a replay of what `enqueue` captures: of `replays` after two that warm up,
// or of the at least four that fit into `seconds`.
inline double graph_us(const std::function<void(cudaStream_t)>& enqueue, int replays,
                       double seconds = std::numeric_limits<double>::infinity()) {
  constexpr int kWarm = 2, kLeast = 4;
  const OwnedStream stream = make_stream();
  const OwnedEvent begin = make_event(true), end = make_event(true);
  cudaGraph_t captured;
  cudaGraphExec_t instance;
  check_cuda(cudaDeviceSynchronize(), "bench");
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  enqueue(stream.get());
  check_cuda(cudaStreamEndCapture(stream.get(), &captured), "capture");
  const OwnedGraph graph(captured);
  check_cuda(cudaGraphInstantiate(&instance, captured, 0), "graph");
  const OwnedGraphExec exec(instance);
  std::vector<double> us;
  double spent = 0;
  for (int i = 0; i < kWarm + replays && (i < kWarm + kLeast || spent < seconds); ++i) {
    record(begin, stream.get());
    check_cuda(cudaGraphLaunch(exec.get(), stream.get()), "replay");
    record(end, stream.get());
    check_cuda(cudaEventSynchronize(end.get()), "replay");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "a replay's time");
    spent += ms / 1e3;
    if (i >= kWarm) us.push_back(1e3 * ms);
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace braid::cuda
