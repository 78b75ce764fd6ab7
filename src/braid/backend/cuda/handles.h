#pragma once

#include <memory>
#include <type_traits>

#include "braid/backend/cuda/check.h"

// Owners of CUDA's handles; each is made on the current device.
namespace braid::cuda {

struct HandleDeleter {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, HandleDeleter>;

using OwnedStream = Owned<cudaStream_t>;
using OwnedEvent = Owned<cudaEvent_t>;
using OwnedGraph = Owned<cudaGraph_t>;
using OwnedGraphExec = Owned<cudaGraphExec_t>;

// A stream's priority: kernels in an `urgent` stream get SMs before others.
inline int stream_priority(bool urgent) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
  return urgent ? greatest : least;
}

// A stream that does not wait for the default stream.
inline OwnedStream make_stream(bool urgent = false) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, stream_priority(urgent)),
             "a stream");
  return OwnedStream(stream);
}

inline OwnedEvent make_event(bool timed = false) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
             "an event");
  return OwnedEvent(event);
}

inline void record(const OwnedEvent& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "an event");
}

// Later work in `stream` waits for the event.
inline void make_wait(cudaStream_t stream, const OwnedEvent& event) {
  check_cuda(cudaStreamWaitEvent(stream, event.get()), "a stream's wait");
}

}  // namespace braid::cuda
