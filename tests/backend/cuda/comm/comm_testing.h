#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/fabric/host_barrier.h"
#include "braid/fabric/peer/peer_fabric.h"
#include "braid/kernels/cuda/comm/device/collectives.h"
#include "braid/tensor/half.h"

// Worlds of GPUs for tests, data that every rank can compute for every other one, and memory whose
// edges are watched.
namespace braid::cuda::test {

inline int device_count() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess;
  if (!found) cudaGetLastError();
  return found ? count : 0;
}

// P ranks: on GPUs of their own, or all on one, which only tests do.
struct WorldKind {
  int ranks;
  bool shared;
};
inline std::string to_string(const WorldKind& k) {
  return "P" + std::to_string(k.ranks) + (k.shared ? "_shared" : "");
}
// The processes of this program's job, each with a rank on a GPU of its own; 0 without a launcher.
int job_processes();

// What this machine can run: GPUs of their own where there are enough.
inline std::vector<WorldKind> worlds() {
  const int devices = device_count();
  std::vector<WorldKind> all;
  if (devices == 0) return all;
  if (const int processes = job_processes(); processes > 0) return {{processes, false}};
  all.push_back({1, false});
  for (int ranks : {2, 3, 4, 8}) {
    if (ranks <= devices) all.push_back({ranks, false});
  }
  if (devices == 1) {
    all.push_back({2, true});
    all.push_back({3, true});
  }
  return all;
}
inline fabric::PeerFabricConfig fabric_config(const WorldKind& kind) {
  fabric::PeerFabricConfig config{.ranks = kind.ranks, .share_devices = kind.shared};
  if (kind.shared) config.devices.assign(kind.ranks, 0);
  config.deadline = std::chrono::seconds(20);
  config.device_deadline = std::chrono::seconds(5);
  return config;
}

// Ranks of a test. Under a launcher (mpirun, torchrun's variables) a world of GPUs of their own has
// its ranks in the processes of a job, over NVSHMEM; else a thread for each, over PeerFabric.
class World {
 public:
  explicit World(const WorldKind& kind);
  explicit World(const fabric::PeerFabricConfig& config);  // of this process, in any case

  // Runs fn on each rank of this process, with the rank's GPU current.
  void run(const std::function<void(fabric::DeviceEndpoint&)>& fn);
  std::string describe() const { return fabric_->describe(); }

 private:
  std::unique_ptr<fabric::Fabric> fabric_;
};

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
// Element i of rank's input of call `call`, in (-1, 1), before rounding to a dtype.
inline float value_of(uint64_t call, int rank, int64_t i) {
  const uint64_t bits = mix(call * 1000003 + mix(rank * 7919 + mix(i)));
  return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f;
}

// Bits of an element, and back.
uint32_t encode(DType dtype, float x);
float decode(DType dtype, uint32_t bits);
inline int64_t size_of(DType dtype) {
  return info(dtype).block_bytes;
}

// Two ranks on two emulated machines, one of them slow, and four on two machines. Four need GPUs of
// their own: on two they were seen to wait for each other's launches.
std::vector<fabric::PeerFabricConfig> machines();

inline CollectiveConfig line(int data, int ctas, int threads) {
  return {.algorithm = CommAlgorithm::line, .ctas = ctas, .threads = threads, .line_data = data};
}
inline CollectiveConfig direct(int ctas, int threads, int unroll) {
  return {.algorithm = CommAlgorithm::direct, .ctas = ctas, .threads = threads, .unroll = unroll};
}

// Device memory of this rank, symmetric or its own, of which a case uses the first bytes; the rest
// must stay poison. Made and destroyed where no rank spins.
class TestBuffer {
 public:
  TestBuffer(fabric::DeviceEndpoint& endpoint, int64_t capacity, const std::string& name,
             bool symmetric = true);
  ~TestBuffer();
  TestBuffer(const TestBuffer&) = delete;

  // For a case: `bytes` at `shift` bytes from an aligned address, all poison.
  void start(int64_t bytes, int64_t shift = 0);
  void* data() const { return base_ + kGuard + shift_; }
  void upload(const std::vector<std::byte>& bytes);
  std::vector<std::byte> download() const;
  bool guards_intact() const;

 private:
  static constexpr int64_t kGuard = 256;
  const int64_t total_;
  int64_t bytes_ = 0;
  int64_t shift_ = 0;
  fabric::SymBuf<std::byte> symmetric_;
  std::byte* own_ = nullptr;
  std::byte* base_ = nullptr;
};

class TestStream {
 public:
  TestStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "synchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `record` launches on the stream, as a graph.
class TestGraph {
 public:
  TestGraph(cudaStream_t stream, const std::function<void()>& record);
  ~TestGraph();
  TestGraph(const TestGraph&) = delete;
  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(exec_, stream), "graph"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

using fabric::HostBarrier;

template <class Fn>
Error error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInvalidArgument, "no error");
}

}  // namespace braid::cuda::test
