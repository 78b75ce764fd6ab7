#pragma once

#include <span>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/key_levels.h"
#include "braid/parallel/attention/sequence_layout.h"
#include "braid/parallel/attention/sequence_mesh.h"
#include "braid/program/builder.h"

namespace braid {

// An attention over a sequence with rows divided over ranks: the computation. Queries and keys have
// separate layouts, perhaps of different sequences (cross-attention). A joint prefix (the text of a
// dual-stream transformer) is whole on every rank, and so is the prefix' result.
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
  std::optional<ops::DualChunks> dual = {};
  // Far keys are thinned: approximate. q is an even_zigzag_layout, whose keys come last in kv.
  std::optional<KeyLevels> levels = {};

  int64_t group() const { return q_heads / kv_heads; }
  bool masked() const { return window_left >= 0 || window_right >= 0; }
};

// On each rank, [sequence = B, L, heads, D]: q of q_heads with room for q.max_rows(), k and v of
// kv_heads for kv.max_rows(); joint values have joint_q and joint_kv rows, or are kNoValue. Types
// are equal on all ranks: rows past a rank's own are never read.
struct AttentionInputs {
  ValueId q = kNoValue;
  ValueId k = kNoValue;
  ValueId v = kNoValue;
  ValueId joint_q = kNoValue;
  ValueId joint_k = kNoValue;
  ValueId joint_v = kNoValue;
  // A value that the step makes first: receive buffers are opened right behind it. kNoValue:
  // q.
  ValueId first = kNoValue;
  // With Importance::previous: the attention before's sums for the prompt's keys, f32 [1,
  // q.max_rows(), kv_heads, 1]. kNoValue: keys are ordered as with Importance::own.
  ValueId scores = kNoValue;
};

// How an attention is divided into transfers and calls.
struct AttentionDivision {
  // Each rank's kernels, or kernels for all ranks (cut_phases).
  std::vector<const KernelCatalog*> kernels = {};
  // Ring and torus: a whole call takes keys from other machines in at most most_parts parts (1 to
  // 16), each half of the part before and of at least least_rows rows (1 or more). Keys of calls
  // that cut_phases cuts come in a single part: a call for each part may cost more than it hides.
  int most_parts = 4;
  int64_t least_rows = 256;
  // With more KV segments than this, keys come in fewer parts.
  int64_t most_segments = ops::kMostSegments;
  // Where queries and their states are fewer bytes than keys, queries go to the keys in place of
  // the mesh's mode (queries.h).
  bool queries = false;
};

struct AttentionOutputs {
  ValueId o = kNoValue;        // as q
  ValueId joint_o = kNoValue;  // as joint_q, whole on every rank
  ValueId scores = kNoValue;   // for the next attention, with Importance::previous
};

// Of an attention with levels, causal, without a prefix. `beside`: a call over a rank's own keys
// runs beside the transfer, and its state goes through memory.
AttentionOutputs lower_levels(std::span<Builder> builders, const SequenceAttention& attention,
                              const AttentionInputs& inputs, bool beside);

ValueType q_type(const SequenceAttention& attention);
ValueType kv_type(const SequenceAttention& attention);

// Appends attention to every rank's Program: `builders` [ranks], with equal values so far. Exact:
// each (query, key) pair is computed once, on a single rank, and merged by the running state. Ops
// have the tag kRingTag (traffic inside ring groups, and prefix results inside a machine), kLinkTag
// (other traffic, and keys fetched once per machine) or none. A single call with phases takes all
// data; cut_phases cuts the call. Fails with kInvalidArgument and the reason if layouts, heads and
// mesh do not fit.
AttentionOutputs lower_attention(std::span<Builder> builders, const SequenceAttention& attention,
                                 const SequenceMesh& mesh, const AttentionInputs& inputs,
                                 const AttentionDivision& division = {});

inline constexpr const char* kRingTag = "sp.ring";
inline constexpr const char* kLinkTag = "sp.link";

// The Programs of an attention alone, cut for `division.kernels`, with inputs q, k, v (joint_q,
// joint_k, joint_v) and outputs o (joint_o). With Importance::previous two more attentions of the
// same q, k and v come before, and the first keeps all keys. [ranks]
std::vector<Program> attention_programs(const SequenceAttention& attention,
                                        const SequenceMesh& mesh,
                                        const AttentionDivision& division = {});

}  // namespace braid
