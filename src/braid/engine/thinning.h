#pragma once

#include <optional>
#include <vector>

#include "braid/model/config.h"
#include "braid/parallel/attention/key_levels.h"

namespace braid {

// Far keys that attention leaves out in prompts, as a user names them.
struct Thinning {
  std::vector<double> keep;  // shares of far keys, by level; empty: all keys, exact
  std::vector<int> groups;   // ranks of each level's groups; empty: all ranks are one level
  Importance importance = Importance::own;
  bool drop_queries = false;

  explicit operator bool() const { return !keep.empty(); }
  bool operator==(const Thinning&) const = default;
};

// Where ranks have all of a prompt's tokens, the prompt has the parts of a ring over the last
// group's ranks; without groups over this many.
constexpr int kThinnedRanks = 8;

// The levels over ranks that divide a prompt's tokens; none: each rank has all tokens. Fails with
// kInvalidArgument, naming the option, as key_levels does.
KeyLevels levels_of(const Thinning& thinning, const std::optional<Topology>& ranks);

// True for models without far keys.
bool each_layer_has_a_window(const ModelConfig& config);

// Fails with kUnsupported on a model without far keys to leave out at this context: with latent
// attention, dual chunks beyond their plain length, or a window in each layer.
void require_far_keys(const ModelConfig& config, int64_t context);

}  // namespace braid
