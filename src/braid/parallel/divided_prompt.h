#pragma once

#include "braid/parallel/lowering.h"

namespace braid {

// The caches that take a divided prompt's keys.
struct DividedKeys {
  int64_t pages = 0;
  int64_t page_size = 64;
  bool all_on_first = false;  // rank 0 takes every key, besides the other ranks' own keys
};

// The ranks' Programs for the first step of a sequence, with products divided over P ranks as
// tensor_parallel says. `program` has a KV cache for this step alone: token t in slot t. This cache
// becomes buffers for a rank's heads. Behind every few attentions the heads go to caches for all
// heads: rank r takes even_part(tokens, P, r) of the keys. A new input of the ranks,
//   to_slots  i32 [most keys of a rank]: slots for a rank's keys, in order; -1: nowhere
// names the keys' places there. Slots of `program` name places in the step's own cache. With
// `token_sharded_residual` (LayoutPlan) ranks keep even parts of the tokens between blocks.
//
// Fails with kUnsupported, naming the reason, for latent attention and mixtures of experts; with
// kInvalidArgument for fewer heads than ranks.
std::vector<RankProgram> lower_divided_prompt(const Program& program, int P,
                                              const DividedKeys& keys,
                                              bool token_sharded_residual = false);

}  // namespace braid
