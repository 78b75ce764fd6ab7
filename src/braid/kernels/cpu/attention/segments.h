#pragma once

#include <span>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/dispatch.h"
#include "braid/ops/dual_chunks.h"

// Segment attention on the CPU, as ops/segment_attention.h defines it.
namespace braid::cpu {

constexpr int64_t kSegmentRows = 32;  // queries of a block, unless the caller asks for more
constexpr int64_t kSegmentKeys = 64;  // keys converted at a time
constexpr int64_t kSegmentPad = 32;   // head_dim is padded to its multiples: two vectors

constexpr int64_t padded_head(int64_t head_dim) {
  return (head_dim + kSegmentPad - 1) / kSegmentPad * kSegmentPad;
}
// `head_dim`: the wider of keys and values; `room` is a multiple of 4.
constexpr int64_t segment_scratch_floats(int64_t head_dim, int64_t room = kSegmentRows) {
  const int64_t padded = padded_head(head_dim);
  return room * (2 * padded + 16) + 2 * kSegmentKeys * padded + 4 * kSegmentKeys;
}

// Keys and values of a sequence and head; with dual chunks, of a single chunk.
struct SegmentKeys {
  const float* k = nullptr;  // [rows, D], rows `stride` apart
  const float* v = nullptr;  // [rows, Dv], likewise
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t position = 0;  // of the first
  // Added to the scaled scores: [queries of the block, rows], rows bias_stride apart. Null:
  // nothing.
  const float* bias = nullptr;
  int64_t bias_stride = 0;
};

// Up to `room` queries of a sequence and head, over several segments of keys.
struct SegmentBlock {
  const float* q = nullptr;  // [rows, D], rows q_stride apart
  int64_t q_stride = 0;
  int64_t rows = 0;
  int64_t position = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // Dv of values, sums and results; 0: head_dim
  float scale = 1;
  int64_t window_left = -1;
  int64_t window_right = -1;
  std::span<const SegmentKeys> keys;
  const ops::DualChunks* dual = nullptr;  // turns q and grows scale; null: plain attention
  std::span<const double> frequencies;    // of dual's rope
  float* state_o = nullptr;               // [rows, Dv], rows state_stride apart
  int64_t state_stride = 0;
  float* state_l = nullptr;  // [rows], stat_stride apart
  float* state_m = nullptr;
  int64_t stat_stride = 0;
  bool load_state = false;
  // [rows, Dv], rows out_stride apart, may be state_o; null: the state is written instead
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t room = kSegmentRows;
  float* scratch = nullptr;  // segment_scratch_floats(), 64-byte aligned
};
BRAID_DECLARE_PER_ISA(void segment_attention_block(const SegmentBlock& b))

}  // namespace braid::cpu
