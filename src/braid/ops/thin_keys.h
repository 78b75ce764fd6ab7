#pragma once

#include <vector>

#include "braid/program/builder.h"

// Keys of a prompt's parts ordered by importance, for attention that reads the first of these keys
// (parallel/attention/key_levels.h).
namespace braid::ops {

struct ThinnedPart {
  enum class By : uint8_t { q, probes, scores };
  By by = By::q;
  int64_t q_row = 0;  // first scoring query, or first row of `scores`
  int64_t queries = 0;
  int64_t sees = 0;  // keys visible to the first scoring query; each further query sees another key
  int64_t k_row = 0;  // first row in k and v
  int64_t rows = 0;
  int64_t keep = 0;   // keys that are put out: at most rows
  int64_t sinks = 0;  // first keys that come before all others
  bool operator==(const ThinnedPart&) const = default;
};

// A key's importance, in a part and for a KV head, is the attention that scoring queries pay the
// key among the part's visible keys: the mean over queries that see the key, and the sum over the
// head's group; or a row of `scores`. The order begins with the first `sinks` keys, then come the
// `recent` last keys from the last on, then all others by importance; equal keys keep their order.
// Outputs have the parts' kept rows one after another, `rows` in all; later rows are undefined.
struct ThinKeysAttrs {
  int64_t group = 1;
  float scale = 1;
  int64_t recent = 16;
  int64_t rows = 1;
  int64_t order_rows = 0;  // rows of the third output; 0: no third output
  std::vector<ThinnedPart> parts;
  bool operator==(const ThinKeysAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts.size());
    f("rows", rows);
    f("recent", recent);
  }
};

//   (q [1, n, Hq, D], k [1, m, Hkv, D], v [1, m, Hkv, D], one dtype; then probes [1, p, Hq, D] of
//   the same dtype, or scores f32 [1, p, Hkv, 1], if a part wants them)
//   -> (k, v) [1, rows, Hkv, D], and with order_rows the parts' orders one after another, counted
//   from k_row: i32 [1, order_rows, Hkv, 1]
extern const OpDef kThinKeys;

// The op for KV head h in a part: an order over all keys, and a copy of the kept keys.
void thin_part(const OpCall& call, size_t part, int64_t h);

}  // namespace braid::ops
