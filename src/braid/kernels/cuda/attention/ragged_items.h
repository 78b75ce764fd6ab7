#pragma once

#include "braid/kernels/cuda/attention/plan.h"

// Items of a call with device-known sequence lengths, without items that are mere capacity. Shared
// by the kernels (device) and the tests (host).
namespace braid::cuda {

// A single run, with rows found by `starts`.
BRAID_HOST_DEVICE bool is_ragged(const AttentionPlan& plan) {
  return plan.num_q == 1 && plan.q[0].starts != nullptr;
}

// State of a walk over items: at item `begin`, the first item in sequence b.
struct ItemWalk {
  int32_t b = 0;
  int32_t begin = 0;
};

// Item `index` of a ragged call, in the order of decode_item; past the last item, `any` is
// false. Sequences shorter than the capacity have fewer items or none. Indices grow from call to
// call.
BRAID_HOST_DEVICE WorkItem ragged_item(const AttentionPlan& plan, int32_t index, ItemWalk& walk) {
  const int32_t* starts = plan.q[0].starts;
  const int32_t tile_tokens = plan.unit_tokens * plan.tile_units;
  for (; walk.b < plan.batch; ++walk.b) {
    const int32_t tiles = (starts[walk.b + 1] - starts[walk.b] + tile_tokens - 1) / tile_tokens;
    const int32_t local = index - walk.begin;
    if (local < tiles * plan.num_head_items) {
      const int32_t heads = min_i(plan.heads_per_pass, plan.num_head_items);
      const int32_t pass = local / (heads * tiles);
      const int32_t in_pass = local - pass * heads * tiles;
      const int32_t pass_heads = min_i(heads, plan.num_head_items - pass * heads);
      return make_item(plan, 0, tiles - 1 - in_pass / pass_heads,
                       walk.b * plan.num_head_items + pass * heads + in_pass % pass_heads);
    }
    walk.begin += tiles * plan.num_head_items;
  }
  return {};
}

}  // namespace braid::cuda
