#include "braid/parallel/thinned_prompt.h"

#include <algorithm>
#include <utility>

#include "braid/ops/attention.h"
#include "braid/ops/input_names.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/latent_attention.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/logical_attention.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

// Writes a rank's Program anew.
class Thinned {
 public:
  Thinned(RankProgram& rank, const TokenSharding& tokens)
      : before_(rank.program), rank_(rank), tokens_(tokens) {}

  void run() {
    if (std::ranges::none_of(attention_layers(before_), &AttentionLayer::thins)) return;
    rank_.program.ops.clear();
    for (int i = 0; i < std::ssize(before_.ops); ++i) {
      const Op& op = before_.ops[static_cast<size_t>(i)];
      if (op.def == &ops::kAttention) {
        check_heads(op);
        const SequenceAttention attention = attention_over(before_, tokens_, i);
        if (attention.levels) {
          attend(op, attention);
          continue;
        }
      }
      rank_.program.ops.push_back(op);
    }
    rank_.placements.resize(rank_.program.values.size());
    verify(rank_.program);
  }

 private:
  void check_heads(const Op& op) const {
    const auto& a = op.attrs.as<ops::AttentionAttrs>();
    const int64_t heads = before_.value(op.inputs[0]).type.shape[1] / a.head_dim;
    const int64_t kv_heads = before_.value(op.inputs[1]).type.shape[2];
    if (a.head_offset == 0 && heads == kv_heads * a.group) return;
    fail(ErrorCode::kInvalidArgument,
         "--keep: rank {} has {} query heads of {} KV heads, wanted all {} of each KV head: fewer "
         "ranks",
         rank_.rank, heads, kv_heads, a.group);
  }

  void attend(const Op& op, const SequenceAttention& attention) {
    const int64_t rows = before_.value(op.inputs[0]).type.shape[0];
    Builder b(std::move(rank_.program), op.scope);
    if (slots_ == kNoValue) {
      slots_ = b.input(inputs::kKvSlots, {DType::i32, {attention.kv.length()}, BatchAxis::none});
    }
    AttentionInputs in;
    in.q = b.op1(ops::kJoinSequence, Attrs::of(ops::JoinSequenceAttrs{attention.head_dim, rows}),
                 {op.inputs[0]});
    const auto kv = b.op(ops::kKvRead, Attrs::of(ops::KvReadAttrs{attention.dtype}),
                         {slots_, op.inputs[1], op.inputs[2]});
    in.k = kv[0], in.v = kv[1];
    in.first = in.q;
    in.scores = scores_;
    const AttentionOutputs made = lower_levels({&b, 1}, attention, in, false);
    if (made.scores != kNoValue) scores_ = made.scores;
    rank_.program = b.release();
    const ops::CutSequenceAttrs cut{.rows = {rows}, .axis = BatchAxis::token};
    rank_.program.ops.push_back(
        {&ops::kCutSequence, Attrs::of(cut), {made.o}, op.outputs, op.scope, op.tag});
  }

  const Program before_;
  RankProgram& rank_;
  const TokenSharding& tokens_;
  ValueId slots_ = kNoValue;
  ValueId scores_ = kNoValue;  // of keys, by the attention before
};

}  // namespace

void thin_far_keys(std::vector<RankProgram>& ranks, const KeyLevels& levels,
                   const SequenceLayout& q, const SequenceLayout& kv) {
  const TokenSharding tokens{
      .mesh = sequence_mesh(SpMode::ring, Topology{}, 1), .q = q, .kv = kv, .levels = levels};
  for (RankProgram& rank : ranks) {
    if (std::ranges::find(rank.program.ops, &ops::kLatentAttention, &Op::def) !=
        rank.program.ops.end()) {
      fail(ErrorCode::kUnsupported,
           "{}: --keep: latent attention reads a cache of all heads' latents: leave it out",
           rank.program.name);
    }
    Thinned(rank, tokens).run();
  }
}

}  // namespace braid
