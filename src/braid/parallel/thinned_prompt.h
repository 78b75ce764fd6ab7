#pragma once

#include "braid/parallel/attention/key_levels.h"
#include "braid/parallel/lowering.h"

namespace braid {

// Thins far keys in the Programs of ranks that have all of a prompt's tokens, and perhaps a part of
// the heads: attentions but the first, the last and those with a window become level attention over
// the rank's own heads. `q` and `kv` are a single rank's layouts, of the prompt's tokens and of all
// keys by then; the levels' ranks say which parts the prompt has. Nothing moves between ranks.
// Programs without such an attention stay as they are; others have a new input on each rank,
//   kv_slots  i32 [rows of kv]: slots of the keys, by position
// names the keys' places in the cache.
//
// Fails with kUnsupported for latent attention, and where keys are thinned for capped scores and
// dual chunks; with kInvalidArgument where ranks share a KV head: a key's importance is a sum over
// the head's group.
void thin_far_keys(std::vector<RankProgram>& ranks, const KeyLevels& levels,
                   const SequenceLayout& q, const SequenceLayout& kv);

}  // namespace braid
