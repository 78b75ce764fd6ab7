#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace braid::fabric {

// Holds up `stream` like a port of limited speed: the transfer starts when the port is free
// (*free_at, device memory, nanoseconds of the GPU's clock), occupies the port for `busy_ns`, and
// the stream goes on `latency_ns` later.
void launch_pace(uint64_t* free_at, uint64_t busy_ns, uint64_t latency_ns, cudaStream_t stream);

// Loads the kernel: its first launch then loads nothing.
void load_pace();

}  // namespace braid::fabric
