#pragma once

#include <span>
#include <utility>
#include <vector>

#include "braid/ops/attention.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/program/builder.h"

namespace braid {

// A step of few tokens whose keys lie on all ranks. Which rank holds which key, and which rank
// takes the keys of new tokens, are inputs of the step, so that one plan serves all lengths. The
// tokens of the step are divided over ranks as any tokens are: rank r's are even_part(T, P, r).
struct KeysApart {
  int64_t sequences = 1;         // S
  int64_t slots = 0;             // K: a rank holds at most so many keys of a sequence
  std::vector<int64_t> windows;  // [W] of the attention ops, in order of their first use; 0: none
  bool operator==(const KeysApart&) const = default;
};

// The windows of a Program's attention ops.
std::vector<int64_t> attention_windows(const Program& program);

// Inputs of each rank that tell which keys it holds (ops/input_names.h, held_ and new_slots).
struct KeysApartInputs {
  ValueId held_slots = kNoValue;  // i32 [S, K]
  ValueId held_rows = kNoValue;   // i32 [T]
  ValueId held_begin = kNoValue;  // i32 [W, T]
  ValueId held_end = kNoValue;    // i32 [T]
  ValueId new_slots = kNoValue;   // i32 [T]
};

// On each rank: q [shard, Hq * D], k and v [shard, Hkv * D] of its tokens, f32 or bf16, its cache,
// and a value that the step makes first.
struct KeysApartAttention {
  ValueId q = kNoValue;
  ValueId k = kNoValue;
  ValueId v = kNoValue;
  ops::KvCache cache;
  ValueId first = kNoValue;
  ops::AttentionAttrs attention;
};

// What peers write in an attention. Counters are those of all attentions that are opened together,
// and `before` of these come first.
struct KeysApartBuffers {
  ValueId come = kNoValue, back = kNoValue;  // counters
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, states = kNoValue;
  int before = 0;
};

// Opens the buffers of attentions whose q and k (v as k) have these types, [shard, H * D], in one
// meeting that depends on the first value alone. [attentions]
std::vector<KeysApartBuffers> open_keys_apart(
    std::span<Builder> builders, const SequenceLayout& tokens, ValueId first, int64_t head_dim,
    const std::vector<std::pair<ValueType, ValueType>>& attentions);

// Appends to every rank's Program an attention that moves queries and not keys: each rank pushes
// the q, k and v of its tokens to all ranks; the rank that is to hold a key writes it to its cache;
// each rank attends to the keys that it holds, and pushes the state of each query to the query's
// owner, which merges all in order of the ranks. Two transfers follow each other in a layer.
// `builders` [ranks] have the same values so far. Returns the result [shard, Hq * D], in the dtype
// of q.
ValueId lower_keys_apart(std::span<Builder> builders, const SequenceLayout& tokens,
                         const KeysApart& apart, const KeysApartInputs& inputs,
                         const KeysApartAttention& attention, const KeysApartBuffers& buffers);

}  // namespace braid
