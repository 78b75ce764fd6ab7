#pragma once

#include <map>
#include <optional>
#include <string>

#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/keys_apart.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/parallel/attention/sequence_mesh.h"
#include "braid/program/program.h"

namespace braid {

// One sequence whose tokens are divided over ranks: how its attention is computed, and where rows
// are. Rows of tokens are in the order of the ranks: rank r's are even_part(T, P, r) of them, at
// the positions that `q` says.
struct TokenSharding {
  SequenceMesh mesh;
  SequenceLayout q;   // tokens of this step
  SequenceLayout kv;  // keys that each rank has in its cache, those of this step included
  // Queries go to the keys, wherever these are, in place of what the mesh names: `kv` is then
  // empty.
  std::optional<KeysApart> apart = {};
};

// A network without a KV cache, whose sequence's rows are divided over ranks: how its attention is
// computed. Which rows are where follows from the inputs' placements.
struct RowSharding {
  SequenceMesh mesh;
};

// What is pinned before propagation along one mesh axis: where weights and states live, by name.
// Everything not named is replicated. Pure data, printable.
struct LayoutPlan {
  std::string axis = "tp";
  int P = 1;
  std::map<std::string, Placement, std::less<>> pinned;
  // Which columns of q [T, Hq * D] a rank's attention takes, by the name of the cache of its keys.
  std::map<std::string, Placement, std::less<>> queries;
  // Between blocks each rank keeps an even part of the tokens (reduce_scatter and all_gather), not
  // all of them (all_reduce).
  bool token_sharded_residual = false;
  // Inputs with the token axis are divided, and all that follows from them; attention over them
  // becomes what the mesh names.
  std::optional<TokenSharding> tokens;
  // `pinned` names inputs too, whose rows (dimension 0) are divided; dense attention over them
  // becomes what the mesh names.
  std::optional<RowSharding> rows;

  Placement placement_of(const std::string& name) const {
    const auto it = pinned.find(name);
    return it == pinned.end() ? Placement::replicated() : it->second;
  }
};

std::string to_string(const LayoutPlan& plan);

}  // namespace braid
