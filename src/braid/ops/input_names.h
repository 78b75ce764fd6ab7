#pragma once

// Names of the inputs that a host writes before each step. Models and lowerings declare inputs by
// these names, and the engine finds the inputs in the Programs by the same names.
namespace braid::inputs {

// Of every forward pass (model/forward_inputs.h).
inline constexpr const char* kTokenIds = "token_ids";    // i32 [T]
inline constexpr const char* kPositions = "positions";   // i32 [T]
inline constexpr const char* kSlots = "slots";           // i32 [T] in the KV cache
inline constexpr const char* kQStart = "q_start";        // i32 [S + 1]
inline constexpr const char* kKvLen = "kv_len";          // i32 [S]
inline constexpr const char* kPageTable = "page_table";  // i32 [S, pages of a sequence]
inline constexpr const char* kRows = "rows";             // i32 [R] tokens whose logits are wanted

// For ranks that divide a sequence's tokens (parallel/).
inline constexpr const char* kKvSlots = "kv_slots";  // i32 [L] for the rank's keys
inline constexpr const char* kToSlots = "to_slots";  // i32 [L] that gathered keys are written to

// For steps with keys on all ranks (parallel/attention/keys_apart.h): S sequences. Key counts cover
// only the rank's keys, ordered by position.
inline constexpr const char* kHeldSlots = "held_slots";  // i32 [S, K] in the rank's cache

// For each of T tokens whose queries are on the rank.
struct Held {
  const char* rows;   // i32 [T] the token's row of held_slots
  const char* begin;  // i32 [W, T] first key seen, by window
  const char* end;    // i32 [T] behind the last key seen
  const char* slots;  // i32 [T] where the token's key goes, or -1
};
inline constexpr Held kGuests{"held_rows", "held_begin", "held_end", "new_slots"};
inline constexpr Held kOwn{"own_rows", "own_begin", "own_end", "own_slots"};

}  // namespace braid::inputs
