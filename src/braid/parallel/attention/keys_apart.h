#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "braid/ops/attention.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/program/builder.h"

namespace braid {

// A step with few tokens and keys on all ranks. Inputs of the step say which rank holds which key,
// and which rank takes new tokens' keys, so a plan serves all lengths. The step's tokens are
// divided over ranks as any tokens are: rank r has even_part(T, P, r).
//
// A *guest* is a token that attends to keys on several ranks. A rank's further tokens are its own:
// all their keys lie on the rank, and one call attends for them and for all ranks' guests.
struct KeysApart {
  int64_t sequences = 1;         // S
  int64_t slots = 0;             // K: the most keys of a sequence on a rank
  std::vector<int64_t> windows;  // [W] attention_windows() of the step's Program
  // The last rows of each rank, for own tokens; 0: all tokens are guests.
  int64_t own = 0;
  bool operator==(const KeysApart&) const = default;
};

// The guests' rows on each rank, which are the first of its rows in `tokens`.
SequenceLayout guests_of(const KeysApart& apart, const SequenceLayout& tokens);

// The window whose row of `begin` has the queries' own positions.
constexpr int64_t kQueryPosition = INT64_MIN;

// The windows of a Program's attention ops, ordered by first use: n, the last n keys; 0, all keys;
// -n, keys from position n on (a dual chunk's). Chunks and kQueryPosition follow their op's 0.
std::vector<int64_t> attention_windows(const Program& program);
// Position of the first key in a window (not kQueryPosition) of the query at `position`.
constexpr int64_t first_in_window(int64_t window, int64_t position) {
  return window > 0 ? position + 1 - window : -window;
}

// Inputs about the queries of an attention over a rank's keys.
struct HeldInputs {
  ValueId rows = kNoValue;   // i32 [T]
  ValueId begin = kNoValue;  // i32 [W, T]
  ValueId end = kNoValue;    // i32 [T]
  ValueId slots = kNoValue;  // i32 [T] of new keys
};

// Each rank's inputs that tell which keys the rank holds (ops/input_names.h).
struct KeysApartInputs {
  ValueId held_slots = kNoValue;  // i32 [S, K]
  HeldInputs guests;              // T: all ranks' guests, then this rank's own rows
  HeldInputs own;                 // T: this rank's rows, in a step without guests
};

// On each rank: its tokens' q [shard, Hq * D], k and v [shard, Hkv * D], f32 or bf16, its cache,
// and a value that the step makes first.
struct KeysApartAttention {
  ValueId q = kNoValue;
  ValueId k = kNoValue;
  ValueId v = kNoValue;
  ops::KvCache cache;
  ValueId first = kNoValue;
  ops::AttentionAttrs attention;
};

// Buffers that peers write in an attention. Attentions opened together share counters, and `before`
// other attentions come first.
struct KeysApartBuffers {
  ValueId come = kNoValue, back = kNoValue;  // counters
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, states = kNoValue;
  int before = 0;
};

// Opens the buffers for attentions with these types of q and k (v as k), [all tokens, H * D], in a
// single meeting that depends on the first value alone. [attentions]
std::vector<KeysApartBuffers> open_keys_apart(
    std::span<Builder> builders, const SequenceLayout& guests, ValueId first, int64_t head_dim,
    const std::vector<std::pair<ValueType, ValueType>>& attentions);

// Appends to every rank's Program an attention that moves queries and not keys. Each rank
// pushes its tokens' q, k and v to all ranks; a key's future holder writes the key to its
// cache; each rank attends to the keys in its cache, and pushes each query's state to the
// query's owner, which merges all states in rank order. A layer has two consecutive transfers.
// `builders` [ranks] have the same values so far. Returns the result [shard, Hq * D], in q's
// dtype. `buffers` are absent where no row is a guest's.
ValueId lower_keys_apart(std::span<Builder> builders, const SequenceLayout& guests,
                         const KeysApart& apart, const KeysApartInputs& inputs,
                         const KeysApartAttention& attention, const KeysApartBuffers& buffers);

}  // namespace braid
