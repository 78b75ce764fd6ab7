#pragma once

#include <map>
#include <string>

#include "braid/program/program.h"

namespace braid {

// What is pinned before propagation along one mesh axis: where weights and states live, by name.
// Everything not named is replicated. Pure data, printable.
struct LayoutPlan {
  std::string axis = "tp";
  int P = 1;
  std::map<std::string, Placement, std::less<>> pinned;
  // Between blocks each rank keeps an even part of the tokens (reduce_scatter and all_gather), not
  // all of them (all_reduce).
  bool token_sharded_residual = false;

  Placement placement_of(const std::string& name) const {
    const auto it = pinned.find(name);
    return it == pinned.end() ? Placement::replicated() : it->second;
  }
};

std::string to_string(const LayoutPlan& plan);

}  // namespace braid
