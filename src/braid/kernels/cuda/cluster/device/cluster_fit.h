#pragma once

namespace braid::cuda {

// Number of `kernel`'s clusters with `size` CTAs that the current device runs at once; 0:
// none. Allows the kernel a CTA's whole shared memory and clusters above 8 CTAs; outside
// capture.
int max_active_clusters(const void* kernel, int size, int threads, int smem);

}  // namespace braid::cuda
