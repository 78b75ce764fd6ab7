#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "any_phases.h"
#include "braid/parallel/attention/lower_attention.h"
#include "dist/fabric_testing.h"

// What tests of sequence-parallel attention sweep over, on CPU ranks and on GPUs.
namespace braid::testing_sp {

struct Shape {
  const char* name;
  int64_t L, kv_L = 0;  // tokens; kv_L 0: as many
  int64_t heads = 24, kv_heads = 24, D = 8, B = 1;
  int64_t left = -1, right = -1;
  int64_t joint_q = 0, joint_kv = 0;
  enum Layout { even, uneven, lopsided, zigzag } layout = even;
  int micro_batches = 1;
};

inline SequenceLayout layout_of(Shape::Layout kind, int64_t L, int P, int64_t first,
                                uint64_t seed) {
  if (kind == Shape::zigzag) return zigzag_layout(L, P, first);
  if (kind == Shape::even) return even_layout(L, P, first);
  if (kind == Shape::uneven) return contiguous_layout(fabric::uneven_parts(seed, P, L), first);
  std::vector<int64_t> lengths(static_cast<size_t>(P), L / (2 * P));
  lengths[0] += L - P * (L / (2 * P));
  return contiguous_layout(lengths, first);
}

inline SequenceAttention attention_of(const Shape& s, int P, DType dtype) {
  SequenceAttention a{.batch = s.B,
                      .q_heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .head_dim = s.D,
                      .dtype = dtype,
                      .scale = 1 / std::sqrt(static_cast<float>(s.D)),
                      .window_left = s.left,
                      .window_right = s.right};
  a.joint_q = s.joint_q;
  a.joint_kv = s.joint_kv;
  a.q = layout_of(s.layout, s.L, P, s.joint_q, 3);
  a.kv = layout_of(s.layout, s.kv_L ? s.kv_L : s.L, P, s.joint_kv, s.kv_L ? 5 : 3);
  return a;
}

}  // namespace braid::testing_sp
