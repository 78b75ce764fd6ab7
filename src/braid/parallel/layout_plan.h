#pragma once

#include <map>
#include <optional>
#include <string>

#include "braid/parallel/attention/key_levels.h"
#include "braid/parallel/attention/keys_apart.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/parallel/attention/sequence_mesh.h"
#include "braid/program/program.h"

namespace braid {

// A sequence with tokens divided over ranks: its attention's form, and its rows' places.
// Token rows are in rank order: rank r has even_part(T, P, r) rows, at the positions in
// `q`.
struct TokenSharding {
  SequenceMesh mesh;
  SequenceLayout q;   // this step's tokens
  SequenceLayout kv;  // keys in each rank's cache, including this step's
  // Queries go to the keys, wherever these are, in place of the mesh's mode: `kv` is then
  // empty.
  std::optional<KeysApart> apart = {};
  // Thins far keys in all attentions but the first, the last and those with a window.
  std::optional<KeyLevels> levels = {};
};

// A network without a KV cache, with rows divided over ranks as inputs' placements say: its
// attention's form. With a mesh of a single rank, each rank gathers all keys.
struct RowSharding {
  SequenceMesh mesh;
  bool pictures = false;  // rows are pixels, as picture_parallel divides them
};

constexpr int64_t kExpertMemory = int64_t{1} << 32;  // LayoutPlan::expert_memory, if nobody says

// Placements pinned before propagation along a mesh axis: weights and states, by name. Everything
// else is replicated. Pure data, printable.
struct LayoutPlan {
  std::string axis = "tp";
  int P = 1;
  // Groups of P ranks along the axis "dp", each with its own sequences: rank g P + r is rank r in
  // group g.
  int groups = 1;
  std::map<std::string, Placement, std::less<>> pinned;
  // Columns in q [T, Hq * D] for a rank's attention, by the name of the keys' cache.
  std::map<std::string, Placement, std::less<>> queries;
  // Experts on each rank over all groups [ranks()], uneven or none; ranks with the same experts
  // share their width. Empty: each rank in a group has a part of every expert.
  std::vector<Range> experts;
  // Bytes on a rank for the exchange's rows of a round and all that experts make of these; 0: all
  // rows come in a single round.
  int64_t expert_memory = 0;
  // The second cut in a weight that `pinned` divides by experts: a part of an expert's width.
  std::map<std::string, Placement, std::less<>> widths;
  // Between blocks each rank keeps an even part of the tokens (reduce_scatter and all_gather),
  // instead of all tokens (all_reduce).
  bool token_sharded_residual = false;
  // Divides inputs with the token axis, and all following values; attention over these becomes the
  // mesh's mode.
  std::optional<TokenSharding> tokens;
  // `pinned` also names inputs with divided rows (dimension 0); dense attention over these becomes
  // the mesh's mode.
  std::optional<RowSharding> rows;

  int ranks() const { return P * groups; }

  Placement placement_of(const std::string& name) const {
    const auto it = pinned.find(name);
    return it == pinned.end() ? Placement::replicated() : it->second;
  }
};

std::string to_string(const LayoutPlan& plan);

}  // namespace braid
