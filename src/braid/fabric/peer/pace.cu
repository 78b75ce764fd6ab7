#include <cuda/ptx>

#include "braid/backend/cuda/launch.h"
#include "braid/fabric/peer/pace.h"

namespace braid::fabric {
namespace {

__global__ void pace_kernel(unsigned long long* free_at, uint64_t busy_ns, uint64_t latency_ns) {
  unsigned long long seen = *free_at;
  unsigned long long end;
  while (true) {
    const unsigned long long now = ::cuda::ptx::get_sreg_globaltimer();
    end = (seen > now ? seen : now) + busy_ns;
    const unsigned long long before = atomicCAS(free_at, seen, end);
    if (before == seen) break;
    seen = before;
  }
  // Bounded: the port's queue is what the host has enqueued.
  while (::cuda::ptx::get_sreg_globaltimer() < end + latency_ns) __nanosleep(200);
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
