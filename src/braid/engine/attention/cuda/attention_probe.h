#pragma once

#include <utility>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/handles.h"
#include "braid/backend/cuda/kernel_table.h"

namespace braid::attention_modes {

// Marks begin and end of a kernel's work in the stream. In a graph the marks are nodes, so the
// newest replay's times can be read.
class Probe {
 public:
  explicit Probe(cuda::BoundKernel kernel) : kernel_(std::move(kernel)) {}
  void launch(const cuda::LaunchContext& context) {
    mark(begin_, context.stream);
    kernel_({context.stream, false});
    mark(end_, context.stream);
  }
  double seconds() const {
    float ms = 0;
    cuda::check_cuda(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "an event's time");
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  static void mark(const cuda::OwnedEvent& event, cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    cuda::check_cuda(cudaStreamIsCapturing(stream, &status), "capture status");
    cuda::check_cuda(
        cudaEventRecordWithFlags(event.get(), stream,
                                 status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault
                                                                       : cudaEventRecordExternal),
        "an event");
  }
  const cuda::BoundKernel kernel_;
  const cuda::OwnedEvent begin_ = cuda::make_event(true), end_ = cuda::make_event(true);
};

}  // namespace braid::attention_modes
