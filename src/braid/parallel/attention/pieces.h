#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/lower_attention.h"

// Building blocks of the lowerings. Rank x = (t, u, r) computes head group g = t U + u for the
// queries of the ranks (t', u', r), over the keys of all ranks. *Class* k of rank x is the data of
// the ranks (t - k, u', r), u' = 0..U-1: class 0 belongs to x's own torus group, and x uses its own
// rows of class 0 in place. *Ring step* i of a class is the class of the i-th ring neighbour (t, u,
// r'), SequenceMesh::ring_sources.
namespace braid {

// One of `count` parts of some rows, each half as long as the part before: little work remains
// after the last part arrives.
struct KeyPart {
  int index = 0;
  int count = 1;
  Range of(int64_t rows) const;
};

// A place of rows: an input, or a buffer. A buffer is planned before a sync opens the buffer; until
// then it has no value.
struct Buffer {
  ValueType type;
  ValueId value = kNoValue;
};
// Buffers for keys and for values.
struct KvBuffer {
  Buffer* k = nullptr;
  Buffer* v = nullptr;
};

// Rows of a buffer in a rank's computation.
struct Piece {
  const Buffer* in = nullptr;  // of q or k
  const Buffer* in_v = nullptr;
  int64_t row = 0;
  int64_t head = 0;
  int64_t rows = 0;
  int64_t position = 0;
  int owner = -1;         // the rows' owner; -1: the joint prefix
  int64_t owner_row = 0;  // first row at the owner
  int phase = 0;          // arrival phase, in a call that waits inside
  int part = kLastPart;   // of the call's results
};
// [ranks]; the buffers are the same on all.
using Chunk = std::vector<std::vector<Piece>>;
// The same chunk, with rows in `buffer` arriving at this phase.
Chunk at_phase(Chunk chunk, const Buffer* buffer, int phase);
// The same, whose rows are results of this part.
Chunk in_part(Chunk chunk, int part);

class AttentionPieces {
 public:
  // Checks that attention, mesh and builders fit.
  AttentionPieces(std::span<Builder> builders, const SequenceAttention& attention,
                  const SequenceMesh& mesh, const AttentionInputs& inputs,
                  const AttentionDivision& division);

  int T() const { return mesh_.degrees.torus; }
  int U() const { return mesh_.degrees.ulysses; }
  int R() const { return mesh_.degrees.ring; }
  int world() const { return mesh_.ranks(); }
  SpMode mode() const { return mesh_.mode; }
  int machines() const { return mesh_.topology.machines; }
  // Names the ops that follow, in their scope: "layers.0.attn.ring1".
  void scope(std::string name) { scope_ = std::move(name); }
  const AttentionInputs& inputs() const { return in_; }
  const Buffer& joint_q() const { return joint_q_; }

  // Results and their arrival counters; joint_o only with a prefix, and with several machines of
  // several ranks separate counters for arrivals from other machines.
  struct Results {
    ValueId o = kNoValue;
    ValueId joint_o = kNoValue;
    ValueId arrivals = kNoValue;
    ValueId joint_arrivals = kNoValue;
  };
  // A buffer of this type, for a sync to open.
  Buffer* plan(const ValueType& type) { return &planned_.emplace_back(Buffer{type}); }
  KvBuffer plan_kv(const ValueType& type) { return {plan(type), plan(type)}; }
  // All ranks meet: `kept` values are ready, and the results and these buffers are open from then
  // on.
  Results open(std::vector<ValueId> kept, const std::vector<Buffer*>& buffers);
  // The end: all results are here, and no rank reads `kept` values any more.
  AttentionOutputs close(const Results& results, std::vector<ValueId> kept, bool meet = true);

  // With room for class k on any rank: queries or keys of a head group.
  ValueType q_buffer(int k) const;
  ValueType kv_buffer(int k, KeyPart part = {}) const;
  // For ring steps; parts belong to class 0 if no buffer has any row of it.
  ValueType ring_buffer(int k, KeyPart part = {}) const;
  // Number of parts for keys of class k, or of ring step i: a single part if no rank gets these
  // keys from another machine. Inside a machine, keys come faster than attention uses them.
  int parts_of_class(int k) const;
  int parts_of_ring(int i) const;
  // The most parts of each step, at most `wanted`, with which a call has as few KV segments as
  // AttentionDivision wants, or single parts. The last step loses parts last, because its last part
  // decides the work left at the end. `segments` counts a call's KV segments.
  std::vector<int> fit_parts(
      const std::vector<int>& wanted,
      const std::function<int64_t(const std::vector<int>& parts)>& segments) const;

  struct Sync {
    const char* axis = "";  // "world", "ring", or none: arrivals alone
    const char* tag = kLinkTag;
    std::vector<ValueId> kept;    // the first one exists
    std::vector<ValueId> closed;  // the first may be arrival counters
    ValueId arrivals = kNoValue;
    std::vector<Buffer*> opens;  // of arrivals_type: counters, starting at zero
  };
  void sync(const Sync& sync);
  // `name` follows the scope: what the buffers are for.
  std::vector<ValueId> buffers(std::string_view name, const std::vector<ValueType>& types);

  // Reads class k of the queries or keys from their owners; this rank's own rows stay in place.
  void pull_q(int k, const Buffer& dst);
  void pull_kv(int k, const KvBuffer& dst, KeyPart part = {});
  // Pulls ring step i of class k into ring[i - 1]. The neighbour has the class in `held` (null:
  // none needed) and, for class 0, in its own k and v. Except in the mode ring, keys of other
  // machines are fetched once per machine: other ranks copy from the fetching rank's buffer.
  // Before that pull a ring meeting keeps the buffers of fetched(i) and opens the buffers of step
  // i.
  void pull_ring(int k, int i, const KvBuffer* held, const std::vector<std::vector<KvBuffer>>& ring,
                 KeyPart part = {});
  // The ring steps, ascending, whose buffers ranks hand on in step i.
  const std::vector<int>& fetched(int i) const { return fetched_[i]; }
  // Whether any step hands on.
  bool hands_on() const;
  // Writes this rank's rows to its ulysses group's buffers for class 0.
  void push_qkv(ValueId arrivals, const Buffer& dst_q, const KvBuffer& dst);

  // Rows in these buffers (null: nothing); class 0 begins with this rank's own rows, in place.
  Chunk q_chunk(int k, const Buffer* buffer) const;
  Chunk kv_chunk(int k, const KvBuffer& buffer, KeyPart part = {}) const;
  Chunk ring_chunk(int k, int i, const KvBuffer& buffer, KeyPart part = {}) const;
  // This rank's share of the joint queries; whole keys; empty without a prefix.
  Chunk joint_q_chunk() const;
  Chunk joint_kv_chunk() const;

  // A call's KV segments over these keys, on the rank with the most.
  int64_t num_segments(const std::vector<const Chunk*>& kv) const;
  // Whether finishing these queries leaves rows to send.
  bool sends(const std::vector<const Chunk*>& q) const;

  // Buffers for finished rows of other ranks; kNoValue: no rank has such rows.
  struct Sent {
    ValueId send = kNoValue;  // for all queries, or for parts before the last if these send rows
    ValueId rest = kNoValue;  // then: of the others
  };
  // The attention: these queries over these keys. Rows go straight to owners whose memory this
  // rank's kernels reach, other rows into a buffer.
  Sent attend(const std::vector<const Chunk*>& q, const std::vector<const Chunk*>& kv,
              const Results& results);
  // Sends these queries' finished rows, in `send` (kNoValue: none), to their owners; tells owners
  // about rows already stored; sends joint rows to all ranks: to a single rank on each other
  // machine, which forwards the rows.
  void push_results(const Results& results, const std::vector<const Chunk*>& q, ValueId send,
                    bool joint);

 private:
  using Moves = std::vector<ops::Move>;
  using Buffers = std::vector<const Buffer*>;  // of a call's inputs
  std::vector<ValueId> emit(const OpDef& def, const std::vector<ValueId>& inputs, const char* tag,
                            const std::function<Attrs(int rank)>& attrs);
  void emit_push(ValueId arrivals, const std::vector<ValueId>& values, const char* tag,
                 const std::function<void(int rank, ops::MoveAttrs&)>& fill);
  void add_rows(ops::MoveAttrs& attrs, const std::vector<const Chunk*>& q) const;
  // Moves these ranks' prefix results to each peer.
  void add_joint(Moves& moves, int joint_o, std::span<const int> peers,
                 std::span<const int> computed) const;
  void relay_joint(const Results& results);
  Moves ring_moves(int x, int k, int i, bool class_fetched, KeyPart part) const;
  // Whether `rank`'s calls store finished rows straight into the results of `owner`, another rank.
  bool stores(int rank, int owner) const;
  ops::QSegment::Out goes_to(const Piece& piece, int rank) const;
  // The ranks that meet `rank` on a mesh axis, or on "world"; "": none.
  std::vector<int> group(int rank, const std::string& axis) const;
  // Pushes not waited for yet, by these counters: [to][from].
  std::vector<std::vector<int64_t>>& pushes_of(ValueId arrivals);
  Range q_heads(int rank) const;   // heads in its head group
  Range kv_heads(int rank) const;  // KV heads for these
  int64_t most(const std::function<int64_t(int rank)>& of) const;
  // Ranks of class k with rows in the rank's buffer.
  std::vector<int> sources(int rank, int k) const;
  int ring_source(int rank, int step) const;
  const SequenceMesh::RingStep& ring_step(int rank, int step) const;
  int64_t buffered_rows(const SequenceLayout& layout, int rank, int k, KeyPart part = {}) const;
  // Rows in class k of `source`, including its own rows in class 0.
  int64_t ring_rows(int source, int k, KeyPart part = {}) const;
  int parts(const std::function<std::vector<int>(int rank)>& sources) const;
  // First row for `source` in a rank's buffer for class 0.
  int64_t row_in_class_0(const SequenceLayout& layout, int rank, int source) const;
  Range joint_rows(int rank) const;
  bool kept_apart(const Piece& a, const Piece& b) const;
  std::vector<ops::KvSegment> kv_segments(const std::vector<const Chunk*>& chunks, int rank,
                                          Buffers& keys) const;
  std::vector<ops::QSegment> q_segments(const std::vector<const Chunk*>& chunks, int rank,
                                        Buffers& queries, int num_kv, bool sends_part) const;
  // Appends the runs of `owner`, or a part of its rows, found in `in` from row `row` on.
  int64_t append(std::vector<Piece>& pieces, const SequenceLayout& layout, int owner,
                 const Buffer* in, const Buffer* in_v, int64_t row, int64_t head,
                 KeyPart part = {}) const;

  std::span<Builder> builders_;
  const SequenceAttention& a_;
  const SequenceMesh& mesh_;
  const AttentionDivision& division_;
  AttentionInputs in_;
  Buffer q_, k_, v_, joint_q_, joint_k_, joint_v_;  // the inputs
  std::deque<Buffer> planned_;
  std::string scope_ = "open";
  std::vector<std::vector<SequenceMesh::RingStep>> ring_steps_;  // [ranks][R]
  std::vector<std::vector<int>> fetched_;                        // [R]
  std::map<ValueId, std::vector<std::vector<int64_t>>> pushes_;  // see pushes_of
};

// One file each.
AttentionOutputs lower_ulysses(AttentionPieces& p);
AttentionOutputs lower_torus(AttentionPieces& p);  // also ring, usp and tas, where T = 1

}  // namespace braid
