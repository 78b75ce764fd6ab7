#pragma once

#include <memory>

#include "braid/engine/cluster_description.h"

namespace braid {

// The kernels of a description's ranks, for plans: this build's CPU kernels, and of other devices
// names alone, as `braid plan` has. `one_sided`: ranks reach into each other's values. Fails with
// kUnsupported, naming both, where CPUs of the description have other instruction sets than this
// machine.
std::unique_ptr<KernelCatalog> cluster_kernels(const ClusterDescription& cluster, bool one_sided);

}  // namespace braid
