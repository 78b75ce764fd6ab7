#include "braid/parallel/attention_parallel.h"

#include <algorithm>

#include "braid/ops/attention.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/input_names.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/logical_attention.h"

namespace braid {

bool AttentionLowering::lower(const Op& op, int index) {
  if (plan_.tokens && plan_.tokens->apart && op.def == &ops::kKvAppend) {
    appended_[op.inputs[3]] = {op.inputs[0], op.inputs[1]};
    return true;
  }
  if (plan_.tokens && op.def == &ops::kAttention) {
    plan_.tokens->apart ? lower_apart(op, index) : lower_kept(op, index);
    return true;
  }
  const auto divided = [&](ValueId id) { return made_.placed(made_.mapped(id)).is_shard(0); };
  const bool dense = plan_.rows && plan_.rows->mesh.ranks() == plan_.P &&
                     op.def == &ops::kDenseAttention &&
                     std::ranges::any_of(queries_of(op), divided);
  if (dense) lower_rows(op, index);
  return dense;
}

void AttentionLowering::lower_kept(const Op& op, int index) {
  const SequenceAttention attention = attention_over(logical_, *plan_.tokens, index);
  if (kv_slots_ == kNoValue) {
    const ValueType slots{DType::i32, {attention.kv.max_rows()}, BatchAxis::none};
    kv_slots_ = made_.add(ValueKind::input, inputs::kKvSlots, slots, {}, -1);
  }
  std::vector<Builder> builders = made_.begin_builders(op);
  AttentionInputs in;
  for (Builder& b : builders) {
    in.q = b.op1(ops::kToSequence, Attrs::of(ops::ToSequenceAttrs{attention.head_dim}),
                 {made_.mapped(op.inputs[0])});
    const auto kv = b.op(ops::kKvRead, Attrs::of(ops::KvReadAttrs{attention.dtype}),
                         {kv_slots_, made_.mapped(op.inputs[1]), made_.mapped(op.inputs[2])});
    in.k = kv[0], in.v = kv[1];
  }
  in.first = made_.mapped(begins_with(logical_, op.scope));
  in.scores = scores_;
  const auto [o, joint_o, scores] =
      lower_attention(builders, attention, plan_.tokens->mesh, in, division_);
  if (scores != kNoValue) scores_ = scores;
  ValueId out = kNoValue;
  for (Builder& b : builders) out = b.op1(ops::kToTokens, {}, {o});
  made_.end_builders(builders, index);
  made_.define(op.outputs[0], out, made_.token_parts());
}

void AttentionLowering::lower_apart(const Op& op, int index) {
  const KeysApart& apart = *plan_.tokens->apart;
  const SequenceLayout guests = guests_of(apart, plan_.tokens->q);
  if (apart_.held_slots == kNoValue) {
    const auto in = [&](const char* name, const Shape& shape) {
      return made_.add(ValueKind::input, name, {DType::i32, shape, BatchAxis::none}, {}, -1);
    };
    const auto held = [&, W = std::ssize(apart.windows)](const inputs::Held& n, int64_t T) {
      return HeldInputs{in(n.rows, {T}), in(n.begin, {W, T}), in(n.end, {T}), in(n.slots, {T})};
    };
    apart_.held_slots = in(inputs::kHeldSlots, {apart.sequences, apart.slots});
    if (guests.length() > 0) {
      apart_.guests = held(inputs::kGuests, guests.length() + apart.own);
    } else {
      apart_.own = held(inputs::kOwn, apart.own);
    }
  }
  const auto kv = appended_.find(op.inputs[1]);
  BRAID_CHECK(kv != appended_.end(), "attention at '{}' to keys that nothing appends", op.scope);
  std::vector<Builder> builders = made_.begin_builders(op);
  const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
  if (apart_open_.empty()) {
    const ValueId first = made_.mapped(begins_with(logical_, op.scope));
    apart_open_ = open_keys_apart(builders, guests, first, attrs.head_dim,
                                  opened_together(logical_, *plan_.tokens, index));
  }
  // Ranks wait for v: a wait for the norm's output would keep the norm apart from its product.
  const ValueId out =
      lower_keys_apart(builders, guests, apart, apart_,
                       {.q = made_.mapped(op.inputs[0]),
                        .k = made_.mapped(kv->second.first),
                        .v = made_.mapped(kv->second.second),
                        .cache = {made_.mapped(op.inputs[1]), made_.mapped(op.inputs[2])},
                        .first = made_.mapped(kv->second.second),
                        .attention = attrs},
                       apart_open_.front());
  apart_open_.erase(apart_open_.begin());
  made_.end_builders(builders, index);
  made_.define(op.outputs[0], out, made_.token_parts());
}

void AttentionLowering::lower_rows(const Op& op, int index) {
  const auto& a = op.attrs.as<ops::DenseAttentionAttrs>();
  if (a.batch != 1 || op.inputs[a.bias()] != kNoValue || op.inputs[a.key_len()] != kNoValue) {
    fail(ErrorCode::kUnsupported,
         "{} attention at '{}': one sequence without bias and key lengths is wanted",
         to_string(plan_.rows->mesh.mode), op.scope);
  }
  const ValueType& q = logical_.value(op.inputs[0]).type;
  const ValueType& k = logical_.value(op.inputs[a.first_key()]).type;
  const auto q_parts = queries_of(op);
  const auto kv_parts = std::span(op.inputs).subspan(a.first_key(), a.kv_parts);
  const size_t whole_q = whole_parts(q_parts), whole_kv = whole_parts(kv_parts);
  const int64_t joint_q = rows_of(q_parts.first(whole_q));
  const int64_t joint_kv = rows_of(kv_parts.first(whole_kv));
  const SequenceAttention attention{.q_heads = q.shape[1] / a.head_dim,
                                    .kv_heads = k.shape[1] / a.head_dim,
                                    .head_dim = a.head_dim,
                                    .dtype = q.dtype,
                                    .scale = a.scale,
                                    .window_right = a.causal ? 0 : -1,
                                    .q = layout_of(op, q_parts.subspan(whole_q), joint_q),
                                    .kv = layout_of(op, kv_parts.subspan(whole_kv), joint_kv),
                                    .joint_q = joint_q,
                                    .joint_kv = joint_kv};
  std::vector<Builder> builders = made_.begin_builders(op);
  AttentionInputs in;
  for (Builder& b : builders) {
    const auto join = [&](size_t first, size_t parts, int64_t rows) {
      if (parts == 0) return kNoValue;
      std::vector<ValueId> values;
      for (size_t i = 0; i < parts; ++i) values.push_back(made_.mapped(op.inputs[first + i]));
      return b.op1(ops::kJoinSequence, Attrs::of(ops::JoinSequenceAttrs{a.head_dim, rows}), values);
    };
    const size_t key = a.first_key(), value = a.first_value();
    in.q = join(whole_q, q_parts.size() - whole_q, attention.q.max_rows());
    in.k = join(key + whole_kv, kv_parts.size() - whole_kv, attention.kv.max_rows());
    in.v = join(value + whole_kv, kv_parts.size() - whole_kv, attention.kv.max_rows());
    in.joint_q = join(0, whole_q, joint_q);
    in.joint_k = join(key, whole_kv, joint_kv);
    in.joint_v = join(value, whole_kv, joint_kv);
  }
  in.first = made_.mapped(begins_with(logical_, op.scope));
  const AttentionOutputs made =
      lower_attention(builders, attention, plan_.rows->mesh, in, division_);
  std::vector<ValueId> out;
  for (size_t r = 0; r < builders.size(); ++r) {
    out.clear();
    const auto cut = [&](ValueId o, std::span<const ValueId> parts) {
      if (parts.empty()) return;
      ops::CutSequenceAttrs rows;
      for (const ValueId part : parts) {
        const Placement& placed = made_.placed(made_.mapped(part));
        rows.rows.push_back(placed.is_shard() ? placed.parts[r].size()
                                              : logical_.value(part).type.shape[0]);
      }
      const auto values = builders[r].op(ops::kCutSequence, Attrs::of(rows), {o});
      out.insert(out.end(), values.begin(), values.end());
    };
    cut(made.joint_o, q_parts.first(whole_q));
    cut(made.o, q_parts.subspan(whole_q));
  }
  made_.end_builders(builders, index);
  for (size_t i = 0; i < out.size(); ++i) {
    made_.define(op.outputs[i], out[i], made_.placed(made_.mapped(op.inputs[i])));
  }
}

std::span<const ValueId> AttentionLowering::queries_of(const Op& op) {
  return std::span(op.inputs).first(op.attrs.as<ops::DenseAttentionAttrs>().first_key());
}

size_t AttentionLowering::whole_parts(std::span<const ValueId> parts) const {
  const auto divided = [&](ValueId id) { return !made_.placed(made_.mapped(id)).is_replicated(); };
  return static_cast<size_t>(std::ranges::find_if(parts, divided) - parts.begin());
}

int64_t AttentionLowering::rows_of(std::span<const ValueId> parts) const {
  int64_t rows = 0;
  for (const ValueId id : parts) rows += logical_.value(id).type.shape[0];
  return rows;
}

SequenceLayout AttentionLowering::layout_of(const Op& op, std::span<const ValueId> parts,
                                            int64_t first) const {
  std::vector<Placement> placements;
  for (ValueId id : parts) placements.push_back(made_.placed(made_.mapped(id)));
  auto layout = joined_layout(placements);
  if (!layout || layout->ranks.empty()) {
    fail(ErrorCode::kUnsupported, "attention at '{}': wanted are whole rows, then divided ones",
         op.scope);
  }
  for (auto& runs : layout->ranks) {
    for (SequenceRun& run : runs) run.position += first;
  }
  return *std::move(layout);
}

}  // namespace braid
