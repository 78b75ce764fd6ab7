#pragma once

#include <memory>

#include "braid/ops/kernel_catalog.h"
#include "braid/schedule/profile.h"

namespace braid {

// The kernels of a profile's GPU, which need not exist, for plans: a Hopper GPU where the profile's
// name or device says H20, H100, H200, H800 or GH200, else a GPU without Hopper's kernels. Null for
// a CPU's profile, and in builds without CUDA.
std::unique_ptr<KernelCatalog> kernels_of_absent_gpu(const Profile& profile);

}  // namespace braid
