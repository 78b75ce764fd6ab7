#pragma once

#include "braid/model/config.h"
#include "braid/schedule/profile.h"

namespace braid {

// Attention of a prompt's chunk in a GPU's step of many requests. A profile's rate is that of a
// full GPU; a chunk over few heads has too few tiles for all SMs. The kernel is chosen for the
// step's capacity, and its estimate (kernels/cuda/attention) says the time at the lengths at hand.
class ChunkAttention {
 public:
  // Of a rank among `parts` that divide the heads, on a Hopper GPU with `sms` SMs, in steps of at
  // most `sequences` sequences. Models without such a kernel get no correction.
  ChunkAttention(const ModelConfig& model, int parts, int64_t sequences, int sms);

  // Seconds of all layers beyond the profile's price, for `tokens` tokens behind `cached` others.
  double beyond(const Profile& profile, int64_t tokens, int64_t cached) const;

 private:
  const int heads_, kv_heads_, head_dim_, sms_, sequences_;
  int64_t layers_ = 0;  // with full attention
};

}  // namespace braid
