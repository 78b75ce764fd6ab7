#pragma once

#include <vector>

#include "braid/program/builder.h"

// Keys of a prompt's parts in order of their importance, for attention that reads the first of them
// (parallel/attention/key_levels.h).
namespace braid::ops {

struct ThinnedPart {
  int64_t q_row = 0;  // first row of the part in q
  int64_t k_row = 0;  // in k and v
  int64_t rows = 0;
  int64_t keep = 0;   // keys that are put out: at most rows
  int64_t sinks = 0;  // first keys that come before all others
  bool operator==(const ThinnedPart&) const = default;
};

// The importance of a key of a part, for a KV head, is the mean over the part's last `scoring`
// queries that see it, and the sum over the head's group, of the attention that they pay it among
// the part's keys up to their own. So it depends on no later token. In the order come first the
// `sinks` first keys, then the `recent` last ones from the last on, then all others by importance;
// of equal ones the earlier. Outputs have the parts' kept rows one after another, `rows` in all;
// rows past them are undefined.
struct ThinKeysAttrs {
  int64_t group = 1;
  float scale = 1;
  int64_t scoring = 32;
  int64_t recent = 16;
  int64_t rows = 1;
  std::vector<ThinnedPart> parts;
  bool operator==(const ThinKeysAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts.size());
    f("rows", rows);
    f("scoring", scoring);
    f("recent", recent);
  }
};

//   (q [1, n, Hq, D], k [1, m, Hkv, D], v [1, m, Hkv, D], one dtype) -> (k, v) [1, rows, Hkv, D]
extern const OpDef kThinKeys;

// The op for KV head h of a part: an order of all its keys, and a copy of the kept ones.
void thin_part(const OpCall& call, size_t part, int64_t h);

}  // namespace braid::ops
