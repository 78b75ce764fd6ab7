#pragma once

#include "braid/backend/cuda/check.h"

namespace braid::fabric {

// Makes `device` the calling thread's, until the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cuda::check_cuda(cudaGetDevice(&before_), "current device");
    if (before_ != device) cuda::check_cuda(cudaSetDevice(device), "choice of the device");
  }
  ~DeviceGuard() { cudaSetDevice(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
};

// A stream of the current device that no other one waits for.
class OwnStream {
 public:
  OwnStream() {
    cuda::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class OwnEvent {
 public:
  OwnEvent() {
    cuda::check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
  }
  ~OwnEvent() { cudaEventDestroy(event_); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) { cuda::check_cuda(cudaEventRecord(event_, stream), "event"); }
  void make_wait(cudaStream_t stream) const {
    cuda::check_cuda(cudaStreamWaitEvent(stream, event_), "wait for an event");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace braid::fabric
