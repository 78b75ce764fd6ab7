#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "braid/parallel/attention/sequence_layout.h"
#include "braid/parallel/topology.h"

namespace braid {

// Queries with attention that makes a key important.
// - own: the part's last queries. They come no later than the part, and nothing is sent.
// - probe: the prompt's last queries, which all ranks receive.
// - previous: all parts' last queries in the layer before, among the keys that they saw there;
//   sums that other ranks' queries paid come back to the key's owner.
// With probe and previous, keys depend on later tokens.
enum class Importance { own, probe, previous };
// Fails with kInvalidArgument, naming --importance.
Importance parse_importance(std::string_view name);
std::string to_string(Importance importance);

// Level attention: a prompt's parts see each other's keys thinned by distance
// (docs/long-prompts.md). Ranks form nested groups of group[0] < group[1] < .. ranks, each dividing
// the next, the last all, or all of more ranks whose parts fewer compute. Two parts of a zigzag's
// same half meet at the first level whose group holds both ranks; parts of different halves meet at
// the last level. A part's own keys are never thinned.
struct KeyLevels {
  std::vector<int> groups;
  std::vector<double> keep;  // shares of a part's keys, by level: above 0, at most 1, never rising
  Importance importance = Importance::own;
  bool drop_queries = false;  // a part's queries that are no kept keys see no far keys either
  int64_t scoring = 32;       // queries at a part's end, or the prompt's, that score keys
  int64_t sinks = 4;          // first keys of the prompt, in each share
  int64_t recent = 16;        // last keys of each part, in each share
  bool operator==(const KeyLevels&) const = default;
};

// The levels for `ranks` ranks: shares of `keep` for some levels, each further one half the last
// but one's group ratio, that is keep * previous group / group. Empty `groups`: all ranks are one
// level. A last group of more ranks, a multiple, cuts prompts as that many ranks would. Fails with
// kInvalidArgument, naming the option, on shares outside (0, 1], not a number or rising, on groups
// that do not divide each other or that the ranks do not divide, and on more shares than levels.
KeyLevels key_levels(std::vector<double> keep, std::vector<int> groups, int ranks);
// The same for a topology's ranks. Without `groups` several shares are for nested_groups, by
// distance: ranks of a machine, machines of a rack, racks.
KeyLevels key_levels(std::vector<double> keep, std::vector<int> groups, const Topology& topology);

// The same levels with all keys and queries.
KeyLevels keeping_all(KeyLevels levels);

// A run of neighbouring tokens in the prompt. Each rank computes two runs.
struct PromptPart {
  int rank = 0;
  bool second = false;  // the rank's later run
  int64_t row = 0;      // first row of the rank's queries
  int64_t rows = 0;
  int64_t position = 0;
};
// An even_zigzag_layout's parts, ordered by position; a part may be empty.
std::vector<PromptPart> prompt_parts(const SequenceLayout& q);
// The parts of a ring over the levels' ranks, with these as ranks. `q` may have fewer ranks, which
// divide the levels': rank r then has the parts of that many neighbours. Where lengths do not
// divide, a part may begin some tokens apart from the ring's, at most half as many as level ranks.
std::vector<PromptPart> level_parts(const KeyLevels& levels, const SequenceLayout& q);

// Number of `part`'s keys that a later part `reader` sees, the most important first.
int64_t kept_keys(const KeyLevels& levels, const PromptPart& reader, const PromptPart& part);
// The level at which two parts meet, from 0 on.
size_t level_of(const KeyLevels& levels, const PromptPart& a, const PromptPart& b);
// Number of `reader`'s queries that see a level's keys: all, or with drop_queries the first in the
// order of their keys, protected queries among them.
int64_t kept_queries(const KeyLevels& levels, const PromptPart& reader, size_t level);

// Pairs of a query and a key that a prompt computes, over the pairs in dense attention; cached
// tokens do not count.
double kept_pairs(const KeyLevels& levels, const SequenceLayout& q);
// Keys that all ranks read from others, in rows with all KV heads: thinned keys, and whole keys of
// `cached` [ranks] earlier tokens. Ranks are those of q, or of the levels.
int64_t pulled_rows(const KeyLevels& levels, const SequenceLayout& q,
                    const std::vector<int64_t>& cached);

}  // namespace braid
