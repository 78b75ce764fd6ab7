#include <algorithm>

#include "braid/ops/one_sided.h"
#include "braid/ops/thin_keys.h"
#include "braid/parallel/attention/pieces.h"

// Level attention: each rank puts its parts' keys in order of importance, and reads as many of the
// others' as its queries' levels ask for. All queries then see their own part, and the first rows
// of earlier ones, in a single call. Keys of earlier steps are read whole.
namespace braid {
namespace {

// Where values stand as pairs of keys of the call.
enum Pair : int { kOwn, kThinned, kPulled };

// Rows of a source in the order of a reader's buffer.
struct PulledRows {
  int source = 0;
  bool thinned = false;
  int64_t src_row = 0;
  int64_t rows = 0;
  int64_t row = 0;  // in the buffer
};

class Levels {
 public:
  Levels(std::span<Builder> builders, const SequenceAttention& a, const AttentionInputs& in)
      : builders_(builders),
        a_(a),
        in_(in),
        levels_(*a.levels),
        P_(static_cast<int>(builders.size())),
        parts_(prompt_parts(a.q)) {
    for (int r = 0; r < P_; ++r) cached_.push_back(a.kv.rows(r) - a.q.rows(r));
  }

  AttentionOutputs lower() {
    const std::vector<ValueId> thinned = thin();
    ValueType buffer = kv_type(a_);
    buffer.shape[1] = 1;
    for (int r = 0; r < P_; ++r) {
      const std::vector<PulledRows> rows = pulled(r);
      if (!rows.empty()) {
        buffer.shape[1] = std::max(buffer.shape[1], rows.back().row + rows.back().rows);
      }
    }
    const std::vector<ValueId> kept{in_.k, in_.v, thinned[0], thinned[1]};
    const auto opened = meet("open", kept, {}, {q_type(a_), buffer, buffer});
    pull(opened[1], opened[2], kept);
    attend(opened[0], opened[1], opened[2], thinned);
    meet("close", kept, {opened[0]}, {});
    return {.o = opened[0]};
  }

 private:
  template <class MakeAttrs>
  std::vector<ValueId> emit(const char* stage, const OpDef& def, const std::vector<ValueId>& inputs,
                            const MakeAttrs& attrs, const char* tag = "") {
    std::vector<ValueId> outputs;
    for (int r = 0; r < P_; ++r) {
      Builder& b = builders_[static_cast<size_t>(r)];
      b.mark(tag);
      const auto scope = b.scope(stage);
      outputs = b.op(def, Attrs::of(attrs(r)), inputs);
      b.mark("");
    }
    return outputs;
  }

  std::vector<ValueId> meet(const char* stage, const std::vector<ValueId>& kept,
                            const std::vector<ValueId>& closed,
                            const std::vector<ValueType>& opens) {
    std::vector<ValueId> inputs(ops::kSyncFirstClosed + ops::kSyncMaxClosed, kNoValue);
    inputs[0] = kept[0];
    std::ranges::copy(closed, inputs.begin() + ops::kSyncFirstClosed);
    inputs.insert(inputs.end(), kept.begin() + 1, kept.end());
    std::vector<int> world;
    for (int r = 0; r < P_; ++r) world.push_back(r);
    return emit(
        stage, ops::kSync, inputs,
        [&](int) {
          return ops::SyncAttrs{.axis = "world",
                                .group = world,
                                .arrivals = {},
                                .opens = opens,
                                .opened_arrivals = {}};
        },
        kLinkTag);
  }

  // Keys that the most demanding of a rank's later parts, or of all ranks', reads of a part.
  int64_t wanted(size_t part, int reader = -1) const {
    int64_t most = 0;
    for (size_t i = part + 1; i < parts_.size(); ++i) {
      if ((reader >= 0 && parts_[i].rank != reader) || parts_[i].rows == 0) continue;
      most = std::max(most, kept_keys(levels_, parts_[i], parts_[part]));
    }
    return most;
  }
  // First row of a part in its rank's thinned keys.
  int64_t thinned_row(size_t part) const {
    int64_t row = 0;
    for (size_t i = 0; i < part; ++i) {
      if (parts_[i].rank == parts_[part].rank) row += wanted(i);
    }
    return row;
  }

  std::vector<ValueId> thin() {
    int64_t most = 1;
    for (size_t i = 0; i < parts_.size(); ++i) most = std::max(most, thinned_row(i) + wanted(i));
    return emit("thin", ops::kThinKeys, {in_.q, in_.k, in_.v}, [&](int r) {
      ops::ThinKeysAttrs attrs{.group = a_.group(),
                               .scale = a_.scale,
                               .scoring = levels_.scoring,
                               .recent = levels_.recent,
                               .rows = most};
      for (size_t i = 0; i < parts_.size(); ++i) {
        const PromptPart& p = parts_[i];
        if (p.rank != r || wanted(i) == 0) continue;
        attrs.parts.push_back({.q_row = p.row,
                               .k_row = cached_[static_cast<size_t>(r)] + p.row,
                               .rows = p.rows,
                               .keep = wanted(i),
                               .sinks = p.position == 0 ? levels_.sinks : 0});
      }
      return attrs;
    });
  }

  std::vector<PulledRows> pulled(int reader) const {
    std::vector<PulledRows> rows;
    int64_t row = 0;
    const auto add = [&](PulledRows pulled) {
      if (pulled.rows == 0) return;
      pulled.row = row;
      row += pulled.rows;
      rows.push_back(pulled);
    };
    if (a_.q.rows(reader) == 0) return rows;
    for (int n = 1; n < P_; ++n) {  // each rank begins with another one
      const int source = (reader + n) % P_;
      add({.source = source, .rows = cached_[static_cast<size_t>(source)]});
      for (size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].rank != source) continue;
        add({.source = source,
             .thinned = true,
             .src_row = thinned_row(i),
             .rows = wanted(i, reader)});
      }
    }
    return rows;
  }

  void pull(ValueId k, ValueId v, const std::vector<ValueId>& kept) {
    std::vector<ValueId> inputs{k, v};
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    emit(
        "pull", ops::kPull, inputs,
        [&](int r) {
          ops::MoveAttrs attrs{.rank = r, .moves = {}, .told = {}};
          for (const PulledRows& rows : pulled(r)) {
            for (int i : {0, 1}) {
              attrs.moves.push_back({.peer = rows.source,
                                     .src = 2 + (rows.thinned ? 2 : 0) + i,
                                     .dst = i,
                                     .rows = rows.rows,
                                     .src_row = rows.src_row,
                                     .dst_row = rows.row,
                                     .heads = a_.kv_heads});
            }
          }
          return attrs;
        },
        kLinkTag);
  }

  // Keys of earlier steps on a rank, from row `row` of a pair on.
  void see_cached(std::vector<ops::KvSegment>& seen, int rank, Pair pair, int64_t row) const {
    int64_t left = cached_[static_cast<size_t>(rank)];
    for (const SequenceRun& run : a_.kv.ranks[static_cast<size_t>(rank)]) {
      const int64_t rows = std::min(run.rows, left);
      if (rows == 0) return;
      seen.push_back({.kv = pair, .row = row, .rows = rows, .position = run.position});
      row += rows;
      left -= rows;
    }
  }

  ops::SegmentAttentionAttrs attention_of(int r) const {
    ops::SegmentAttentionAttrs attrs{.heads = a_.q_heads,
                                     .kv_heads = a_.kv_heads,
                                     .group = a_.group(),
                                     .scale = a_.scale,
                                     .window_left = a_.window_left,
                                     .window_right = a_.window_right};
    const std::vector<PulledRows> rows = pulled(r);
    const auto buffer_row = [&](int source, bool thinned, int64_t src_row) {
      return std::ranges::find_if(rows,
                                  [&](const PulledRows& p) {
                                    return p.source == source && p.thinned == thinned &&
                                           p.src_row == src_row;
                                  })
          ->row;
    };
    for (size_t i = 0; i < parts_.size(); ++i) {
      const PromptPart& own = parts_[i];
      if (own.rank != r || own.rows == 0) continue;
      const auto begin = static_cast<int>(attrs.kv.size());
      for (int s = 0; s < P_; ++s) {
        if (cached_[static_cast<size_t>(s)] == 0) continue;
        see_cached(attrs.kv, s, s == r ? kOwn : kPulled, s == r ? 0 : buffer_row(s, false, 0));
      }
      for (size_t j = 0; j < i; ++j) {
        const PromptPart& part = parts_[j];
        const int64_t keys = kept_keys(levels_, own, part), row = thinned_row(j);
        if (keys == 0) continue;
        attrs.kv.push_back({.kv = part.rank == r ? kThinned : kPulled,
                            .row = part.rank == r ? row : buffer_row(part.rank, true, row),
                            .rows = keys,
                            .position = part.position});
      }
      attrs.kv.push_back({.kv = kOwn,
                          .row = cached_[static_cast<size_t>(r)] + own.row,
                          .rows = own.rows,
                          .position = own.position});
      attrs.q.push_back({.row = own.row,
                         .rows = own.rows,
                         .position = own.position,
                         .state_row = own.row,
                         .out_row = own.row,
                         .kv_begin = begin,
                         .kv_end = static_cast<int>(attrs.kv.size())});
    }
    return attrs;
  }

  void attend(ValueId o, ValueId k, ValueId v, const std::vector<ValueId>& thinned) {
    ValueType state = q_type(a_);
    state.dtype = DType::f32;
    ValueType sums = state;
    sums.shape = {state.shape[0], state.shape[1], state.shape[2]};
    const auto states = emit("attend", ops::kBuffers, {in_.q}, [&](int) {
      return ops::BuffersAttrs{{state, sums, sums}};
    });
    emit("attend", ops::kSegmentAttention,
         {states[0], states[1], states[2], o, kNoValue, kNoValue, in_.q, in_.k, in_.v, thinned[0],
          thinned[1], k, v},
         [&](int r) { return attention_of(r); });
  }

  std::span<Builder> builders_;
  const SequenceAttention& a_;
  const AttentionInputs& in_;
  const KeyLevels& levels_;
  const int P_;
  const std::vector<PromptPart> parts_;
  std::vector<int64_t> cached_;  // [ranks] keys of earlier steps
};

}  // namespace

AttentionOutputs lower_levels(std::span<Builder> builders, const SequenceAttention& attention,
                              const AttentionInputs& inputs) {
  return Levels(builders, attention, inputs).lower();
}

}  // namespace braid
