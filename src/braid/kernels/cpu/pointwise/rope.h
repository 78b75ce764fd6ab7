#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/kernels/cpu/kv_cache.h"
#include "braid/ops/rope.h"

namespace braid::cpu {

constexpr int64_t kMaxRopeHeadDim = 512;

// The turn itself: ops::RopeAttrs with its frequencies worked out (ops::rope_frequencies). Angles
// are formed and reduced in f64, so cos and sin are within 2e-7 at any position; [rot, D) of a head
// passes through.
struct RopeSpec {
  const int32_t* positions = nullptr;  // [T]
  const double* inv_freq = nullptr;    // [rot / 2] radians per position
  float mscale = 1.0f;                 // multiplies cos and sin
  ops::RopePairing pairing = ops::RopePairing::half;
  int64_t head_dim = 0;  // D, at most kMaxRopeHeadDim
  int64_t rot = 0;       // even, at most D
};

// A group of heads: norm(x) * w over each head if w is given, then the turn.
struct RopeHeads {
  const float* x = nullptr;  // [T, H * D], rows x_stride apart
  int64_t x_stride = 0;
  const float* norm_w = nullptr;  // [D] or null
  float norm_eps = 0;
  int64_t heads = 0;  // H
};

struct RopeParams {
  RopeSpec rope;
  RopeHeads in;
  float* out = nullptr;  // [T, H * D], rows out_stride apart; may be in.x
  int64_t out_stride = 0;
  int64_t tokens = 0;  // T
};
void rope(const RopeParams& p, const Team& team, Isa isa = detected_isa());

// One pass over the projections of a token: q_out = rope(q); cache.k[slot] = rope(k); cache.v[slot]
// = v, the cache rounded to its dtype; slot < 0 writes no cache. Tokens and heads are split over
// the team; results do not depend on it.
struct RopeAppendParams {
  RopeSpec rope;
  RopeHeads q;             // [T, Hq * D]
  float* q_out = nullptr;  // [T, Hq * D], rows q_out_stride apart; may be q.x
  int64_t q_out_stride = 0;
  RopeHeads k;               // [T, Hkv * D]
  const float* v = nullptr;  // [T, Hkv * D], rows v_stride apart
  int64_t v_stride = 0;
  const int32_t* slots = nullptr;  // [T]
  KvCache cache;
  int64_t tokens = 0;  // T
};
void rope_append(const RopeAppendParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
