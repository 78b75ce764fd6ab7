#pragma once

#include <memory>

#include "braid/engine/attention/attention_modes.h"
#include "braid/fabric/fabric.h"

namespace braid::attention_modes {

// A rank on each GPU that `bench` names, all in this process, or one in each process of its job.
// Fails with kInvalidArgument on ranks of one machine that share a GPU, with kUnsupported on more
// than two ranks of a GPU.
std::unique_ptr<fabric::Fabric> make_fabric(const AttentionBench& bench, const Topology& topology);

}  // namespace braid::attention_modes
