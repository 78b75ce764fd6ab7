#pragma once

namespace braid::cuda {

// How many clusters of `size` CTAs of `kernel` the current device runs at the same time; 0: none.
// Allows the kernel all of a CTA's shared memory and clusters of more than 8 CTAs; outside of
// capture.
int max_active_clusters(const void* kernel, int size, int threads, int smem);

}  // namespace braid::cuda
