#include <cuda/std/chrono>

#include "braid/backend/cuda/launch.h"
#include "braid/fabric/peer/pace.h"

namespace braid::fabric {
namespace {

// The GPU clock shared by all its SMs.
__device__ unsigned long long now_ns() {
  namespace chrono = ::cuda::std::chrono;
  const auto now = chrono::system_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(chrono::duration_cast<chrono::nanoseconds>(now).count());
}

__global__ void pace_kernel(unsigned long long* free_at, uint64_t busy_ns, uint64_t latency_ns) {
  unsigned long long seen = *free_at;
  unsigned long long end;
  while (true) {
    const unsigned long long now = now_ns();
    end = (seen > now ? seen : now) + busy_ns;
    const unsigned long long before = atomicCAS(free_at, seen, end);
    if (before == seen) break;
    seen = before;
  }
  // Bounded by the port's queue of enqueued copies.
  while (now_ns() < end + latency_ns) __nanosleep(200);
}

}  // namespace

void launch_pace(uint64_t* free_at, uint64_t busy_ns, uint64_t latency_ns, cudaStream_t stream) {
  pace_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned long long*>(free_at), busy_ns,
                                   latency_ns);
  braid::cuda::check_cuda(cudaGetLastError(), "launch of the link's pace");
}

void load_pace() {
  braid::cuda::load_kernel(pace_kernel);
}

}  // namespace braid::fabric
