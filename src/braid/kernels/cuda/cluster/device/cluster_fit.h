#pragma once

namespace braid::cuda {

// Number of clusters of `size` CTAs of `kernel` that the current device runs at once; 0:
// none. Allows the kernel all of a CTA's shared memory and clusters above 8 CTAs; outside
// capture.
int max_active_clusters(const void* kernel, int size, int threads, int smem);

}  // namespace braid::cuda
