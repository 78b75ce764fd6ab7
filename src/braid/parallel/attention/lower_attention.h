#pragma once

#include <span>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/parallel/attention/sequence_mesh.h"
#include "braid/program/builder.h"

namespace braid {

// One attention over a sequence whose rows are divided over ranks: what is computed. Queries and
// keys have layouts of their own, which may be of different sequences (cross-attention). A joint
// prefix (the text of a dual-stream transformer) is whole on every rank, and so is its result.
struct SequenceAttention {
  int64_t batch = 1;  // B, capacity of the sequence axis
  int64_t q_heads = 1;
  int64_t kv_heads = 1;  // divides q_heads; query head h reads KV head h / (q_heads / kv_heads)
  int64_t head_dim = 64;
  DType dtype = DType::f32;
  float scale = 1;
  int64_t window_left = -1;  // as ops::SegmentAttentionAttrs
  int64_t window_right = -1;
  SequenceLayout q;
  SequenceLayout kv;
  int64_t joint_q = 0;  // rows of the prefix, at positions from 0 on
  int64_t joint_kv = 0;

  int64_t group() const { return q_heads / kv_heads; }
  bool masked() const { return window_left >= 0 || window_right >= 0; }
};

// On each rank, [sequence = B, L, heads, D]: q of q_heads with room for q.max_rows(), k and v of
// kv_heads for kv.max_rows(); joint ones have joint_q and joint_kv rows, kNoValue where there are
// none. The types are the same on every rank: rows past a rank's own are room that is never read.
struct AttentionInputs {
  ValueId q = kNoValue;
  ValueId k = kNoValue;
  ValueId v = kNoValue;
  ValueId joint_q = kNoValue;
  ValueId joint_k = kNoValue;
  ValueId joint_v = kNoValue;
  // A value that exists early in the step: receive buffers are opened as soon as it is made.
  // kNoValue: q.
  ValueId early = kNoValue;
};

// How the lowering may cut an attention into calls and transfers.
struct AttentionStages {
  // Of each rank, or of all: whether the kernel of a call waits for its stages inside. None: no
  // call has more than one.
  std::vector<const KernelCatalog*> kernels = {};
  // Ring and torus: keys that such a call gets from other machines come in up to so many parts (1
  // to 16), each half of the one before and of at least so many rows (1 or more): it goes on with
  // one while the next ones come.
  int most_parts = 4;
  int64_t least_rows = 256;
};

struct AttentionOutputs {
  ValueId o = kNoValue;        // as q
  ValueId joint_o = kNoValue;  // as joint_q, whole on every rank
};

ValueType q_type(const SequenceAttention& attention);
ValueType kv_type(const SequenceAttention& attention);

// Appends attention to every rank's Program: `builders` [ranks], which have the same values so far.
// Exact: each (query, key) pair is computed once, on one rank, and merged by the running state.
// Ops have the tags kRingTag (traffic inside the ring groups, and the prefix' results inside a
// machine), kLinkTag (all other, and keys that are fetched once for a machine) or none. Where
// `stages` says so, what pulls bring is one call's, which carries no state; else each is a call of
// its own. Fails with kInvalidArgument where layouts, heads and mesh do not fit, with the reason.
AttentionOutputs lower_attention(std::span<Builder> builders, const SequenceAttention& attention,
                                 const SequenceMesh& mesh, const AttentionInputs& inputs,
                                 const AttentionStages& stages = {});

inline constexpr const char* kRingTag = "sp.ring";
inline constexpr const char* kLinkTag = "sp.link";

// The Programs of one attention by itself, with inputs q, k, v (joint_q, joint_k, joint_v) and
// outputs o (joint_o). [ranks]
std::vector<Program> attention_programs(const SequenceAttention& attention,
                                        const SequenceMesh& mesh,
                                        const AttentionStages& stages = {});

}  // namespace braid
