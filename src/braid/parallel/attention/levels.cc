#include <algorithm>

#include "braid/ops/ordered_queries.h"
#include "braid/ops/paid_keys.h"
#include "braid/ops/thin_keys.h"
#include "braid/parallel/attention/level_calls.h"
#include "braid/parallel/attention/level_ops.h"
#include "braid/parallel/attention/level_rows.h"
#include "braid/parallel/attention/level_scores.h"

// Level attention. Each rank puts its parts' keys in order of importance, and reads as many of
// other ranks' keys as its queries' levels ask for. All queries then see their own part, and the
// first rows of earlier parts. Between machines, queries see keys of their own rank beside this
// transfer, and a second call goes on over the keys that have come. Keys of earlier steps are read
// whole. If queries are dropped, a call takes queries in order over other parts' keys, and the next
// sees their own parts. Ranks that are fewer than the levels' have several of their parts, and read
// own thinned keys besides; a rank alone has all parts.
namespace braid {
namespace {

using By = ops::ThinnedPart::By;

class Levels {
 public:
  Levels(std::span<Builder> builders, const SequenceAttention& a, const AttentionInputs& in,
         bool beside)
      : ops_(builders),
        a_(a),
        in_(in),
        beside_(beside),
        levels_(*a.levels),
        P_(static_cast<int>(builders.size())),
        rows_(a) {}

  AttentionOutputs lower() {
    const ValueId probes = ask();
    thin(probes);
    ValueType buffer = kv_type(a_);
    buffer.shape[1] = rows_.pulled_rows();
    std::vector<ValueId> kept{in_.k, in_.v, thinned_[0], thinned_[1]};
    if (probes != kNoValue) kept.push_back(in_.q);  // until the last rank has read it
    const auto opened = ops_.meet("open", kept, {}, {ops_.type(in_.q), buffer, buffer});
    kept.resize(4);
    k_ = opened[1], v_ = opened[2];
    pull(kept);
    attend(opened[0]);
    const ValueId scores = scored_by_previous() ? score(kept) : kNoValue;
    ops_.meet("close", kept, {opened[0]}, {});
    return {.o = opened[0], .scores = scores};
  }

 private:
  bool scored_by_previous() const { return levels_.importance == Importance::previous; }

  int64_t probes() const { return std::min(levels_.scoring, rows_.last().rows); }
  int64_t probe_row() const { return rows_.last().row + rows_.last().rows - probes(); }

  // The prompt's last queries for all ranks, if these queries score keys.
  ValueId ask() {
    if (levels_.importance != Importance::probe || P_ == 1) return kNoValue;
    ValueType type = q_type(a_);
    type.shape[1] = probes();
    const ValueId asked = ops_.meet("ask", {in_.q}, {}, {type})[0];
    ops_.emit(
        "ask", ops::kPull, {asked, kNoValue, in_.q},
        [&](int r) {
          ops::MoveAttrs attrs{.rank = r, .moves = {}, .told = {}};
          if (r == rows_.last().rank || a_.q.rows(r) == 0) return attrs;
          attrs.moves.push_back({.peer = rows_.last().rank,
                                 .src = 2,
                                 .dst = 0,
                                 .rows = probes(),
                                 .src_row = probe_row(),
                                 .dst_row = 0,
                                 .heads = a_.q_heads});
          return attrs;
        },
        kLinkTag);
    return asked;
  }

  // Scoring queries at a part's end; the first sees `sees` keys of the part.
  int64_t scoring(const PromptPart& p) const { return std::min(levels_.scoring, p.rows); }

  ops::ThinnedPart scored(const PromptPart& p) const {
    if (levels_.importance == Importance::probe) {
      const bool mine = p.rank == rows_.last().rank;
      const bool last = p.position == rows_.last().position;  // whose keys are the probes' own
      return {.by = mine ? By::q : By::probes,
              .q_row = mine ? probe_row() : 0,
              .queries = probes(),
              .sees = last ? p.rows - probes() + 1 : p.rows};
    }
    if (in_.scores != kNoValue) return {.by = By::scores, .q_row = p.row};
    const int64_t n = scoring(p);
    return {.q_row = p.row + p.rows - n, .queries = n, .sees = p.rows - n + 1};
  }

  void thin(ValueId probes) {
    std::vector<ValueId> inputs{in_.q, in_.k, in_.v};
    for (ValueId scorers : {probes, in_.scores}) {
      if (scorers != kNoValue) inputs.push_back(scorers);
    }
    const bool orders = levels_.drop_queries || scored_by_previous();
    thinned_ = ops_.emit("thin", ops::kThinKeys, inputs, [&](int r) {
      ops::ThinKeysAttrs attrs{.group = a_.group(),
                               .scale = a_.scale,
                               .recent = levels_.recent,
                               .rows = rows_.thinned_rows(),
                               .order_rows = orders ? q_type(a_).shape[1] : 0};
      for (size_t i = 0; i < rows_.parts().size(); ++i) {
        const PromptPart& p = rows_.parts()[i];
        if (p.rank != r || p.rows == 0 || (rows_.wanted(i) == 0 && !orders)) continue;
        ops::ThinnedPart part = scored(p);
        part.k_row = rows_.cached(r) + p.row;
        part.rows = p.rows;
        part.keep = rows_.wanted(i);
        part.sinks = p.position == 0 ? levels_.sinks : 0;
        attrs.parts.push_back(part);
      }
      return attrs;
    });
  }

  void pull(const std::vector<ValueId>& kept) {
    if (P_ == 1) return;
    std::vector<ValueId> inputs{k_, v_};
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    ops_.emit(
        "pull", ops::kPull, inputs,
        [&](int r) {
          ops::MoveAttrs attrs{.rank = r, .moves = {}, .told = {}};
          for (const PulledRows& rows : rows_.pulled(r)) {
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

  // All ranks' keys of earlier steps, as rank r finds them.
  void see_cached(std::vector<ops::KvSegment>& seen, int r,
                  std::span<const PulledRows> buffer) const {
    for (int s = 0; s < P_; ++s) {
      int64_t left = rows_.cached(s);
      if (left == 0) continue;
      int64_t row = s == r ? 0 : buffer_row(buffer, s, false, 0);
      for (const SequenceRun& run : a_.kv.ranks[static_cast<size_t>(s)]) {
        const int64_t rows = std::min(run.rows, left);
        if (rows == 0) break;
        const int pair = s == r ? kOwn : kPulled;
        seen.push_back({.kv = pair, .row = row, .rows = rows, .position = run.position});
        row += rows;
        left -= rows;
      }
    }
  }

  // The keys in an earlier part that part i on rank r sees.
  void see_part(std::vector<ops::KvSegment>& seen, size_t i, size_t earlier,
                std::span<const PulledRows> buffer) const {
    const PromptPart& part = rows_.parts()[earlier];
    const int64_t keys = rows_.kept(i, earlier), row = rows_.thinned_row(earlier);
    if (keys == 0) return;
    const bool own = part.rank == rows_.parts()[i].rank;
    seen.push_back({.kv = own ? kThinned : kPulled,
                    .row = own ? row : buffer_row(buffer, part.rank, true, row),
                    .rows = keys,
                    .position = part.position});
  }

  ops::SegmentAttentionAttrs attrs() const {
    return {.heads = a_.q_heads,
            .kv_heads = a_.kv_heads,
            .group = a_.group(),
            .scale = a_.scale,
            .window_left = a_.window_left,
            .window_right = a_.window_right};
  }

  // The keys that a call reads: all, the rank's own, or pulled ones. The call over pulled keys
  // loads the states of the call over own keys.
  enum class Over { all, own, pulled };

  // A call of rank r; without `far` the earlier parts' keys have been seen.
  ops::SegmentAttentionAttrs attention_of(int r, bool far, Over over = Over::all) const {
    ops::SegmentAttentionAttrs attrs = this->attrs();
    attrs.load_state = !far || over == Over::pulled;
    attrs.finalize = over != Over::own;
    const std::vector<PulledRows> buffer = rows_.pulled(r);
    for (size_t i = 0; i < rows_.parts().size(); ++i) {
      const PromptPart& own = rows_.parts()[i];
      if (own.rank != r || own.rows == 0) continue;
      const auto begin = static_cast<int>(attrs.kv.size());
      see_cached(attrs.kv, r, buffer);
      for (size_t j = 0; far && j < i; ++j) see_part(attrs.kv, i, j, buffer);
      attrs.kv.push_back({.kv = kOwn,
                          .row = rows_.cached(r) + own.row,
                          .rows = own.rows,
                          .position = own.position});
      const auto other = [&](const ops::KvSegment& s) {
        return over != Over::all && (s.kv == kPulled) != (over == Over::pulled);
      };
      attrs.kv.erase(std::remove_if(attrs.kv.begin() + begin, attrs.kv.end(), other),
                     attrs.kv.end());
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

  // Rank r's call over earlier parts' keys: queries in order, the first queries over all levels,
  // later queries over fewer and nearer levels.
  ops::SegmentAttentionAttrs far_attention_of(int r) const {
    ops::SegmentAttentionAttrs attrs = this->attrs();
    attrs.window_left = attrs.window_right = ops::kUnlimited;  // all keys come before all queries
    attrs.finalize = false;
    const std::vector<PulledRows> buffer = rows_.pulled(r);
    for (size_t i = 0; i < rows_.parts().size(); ++i) {
      const PromptPart& own = rows_.parts()[i];
      if (own.rank != r || own.rows == 0) continue;
      const auto begin = static_cast<int>(attrs.kv.size());
      std::vector<int> ends;  // [levels] of their keys
      for (size_t level = 0; level < levels_.groups.size(); ++level) {
        for (size_t j = 0; j < i; ++j) {
          if (rows_.level(i, j) == level) see_part(attrs.kv, i, j, buffer);
        }
        ends.push_back(static_cast<int>(attrs.kv.size()));
      }
      int64_t row = 0;
      const auto add = [&](int64_t until, int end) {
        if (until <= row) return;
        attrs.q.push_back({.row = own.row + row,
                           .rows = until - row,
                           .position = own.position,
                           .state_row = own.row + row,
                           .kv_begin = begin,
                           .kv_end = end});
        row = until;
      };
      for (size_t level = ends.size(); level-- > 0;) {
        add(kept_queries(levels_, own, level), ends[level]);
      }
      add(own.rows, begin);
    }
    return attrs;
  }

  std::vector<ValueId> keys(Over over) const {
    if (over == Over::own) return {in_.k, in_.v, thinned_[0], thinned_[1]};
    return {in_.k, in_.v, thinned_[0], thinned_[1], k_, v_};
  }

  std::vector<ValueId> states(int64_t rows) {
    ValueType state = q_type(a_);
    state.dtype = DType::f32;
    state.shape[1] = rows;
    ValueType sums = state;
    sums.shape = {state.shape[0], state.shape[1], state.shape[2]};
    return ops_.buffers("attend", in_.q, {state, sums, sums});
  }

  void call(const std::vector<ValueId>& states, ValueId o, ValueId q, const auto& attrs,
            Over over = Over::all) {
    std::vector<ValueId> inputs{states[0], states[1], states[2], o,
                                kNoValue,  kNoValue,  kNoValue,  q};
    for (ValueId key : keys(over)) inputs.push_back(key);
    ops_.emit("attend", ops::kSegmentAttention, inputs, attrs);
  }

  // `attrs` of each rank; ranks with more than two parts take some in a call.
  void calls_of(const std::vector<ValueId>& states, ValueId o, ValueId q, const auto& attrs,
                Over over = Over::all) {
    std::vector<ops::SegmentAttentionAttrs> ranks;
    for (int r = 0; r < P_; ++r) ranks.push_back(attrs(r));
    std::vector<std::vector<ops::SegmentAttentionAttrs>> calls{ranks};
    if (P_ != levels_.groups.back()) calls = level_calls(ranks, kThinned);
    for (const auto& made : calls) {
      call(
          states, o, q, [&](int r) { return made[static_cast<size_t>(r)]; }, over);
    }
  }

  // The same for a rank alone, with states for a single call's rows.
  void attend_alone(ValueId o) {
    const auto calls = level_calls(attention_of(0, true), kThinned);
    const std::vector<ValueId> state = states(state_rows(calls));
    for (const auto& made : calls) call(state, o, in_.q, [&](int) { return made; });
  }

  void attend(ValueId o) {
    if (P_ == 1 && !levels_.drop_queries) return attend_alone(o);
    if (!levels_.drop_queries) {
      const std::vector<ValueId> state = states(q_type(a_).shape[1]);
      const auto over = [&](Over keys, ValueId to) {
        calls_of(
            state, to, in_.q, [&](int r) { return attention_of(r, true, keys); }, keys);
      };
      if (!beside_) return over(Over::all, o);
      over(Over::own, kNoValue);  // beside the pull
      return over(Over::pulled, o);
    }
    const auto ordered = [&](int r) {
      ops::OrderedQueriesAttrs attrs{.group = a_.group(), .parts = {}};
      for (const PromptPart& p : rows_.parts()) {
        if (p.rank == r && p.rows > 0) attrs.parts.push_back({p.row, p.rows});
      }
      return attrs;
    };
    const ValueId q = ops_.emit("attend", ops::kOrderQueries, {in_.q, thinned_[2]}, ordered)[0];
    const std::vector<ValueId> far = states(q_type(a_).shape[1]);
    calls_of(far, kNoValue, q, [&](int r) { return far_attention_of(r); });
    const auto restored =
        ops_.emit("attend", ops::kRestoreStates, {far[0], far[1], far[2], thinned_[2]}, ordered);
    calls_of(restored, o, in_.q, [&](int r) { return attention_of(r, false); });
  }

  // Sums that all parts' last queries paid this rank's keys; other ranks' sums are read from them.
  ValueId score(const std::vector<ValueId>& kept) {
    const auto paid =
        ops_.emit("score", ops::kPaidKeys, {in_.q, in_.k, thinned_[0], k_}, [&](int r) {
          ops::PaidKeysAttrs attrs{attention_of(r, true)};
          for (ops::QSegment& s : attrs.segments.q) {
            const int64_t n = std::min(levels_.scoring, s.rows);
            s.row += s.rows - n;
            s.position += s.rows - n;
            s.rows = n;
          }
          return attrs;
        });
    const ValueType inbox{DType::f32, {1, rows_.inbox_rows(), a_.kv_heads, 1}, BatchAxis::sequence};
    std::vector<ValueId> ready{paid[2]};
    ready.insert(ready.end(), kept.begin(), kept.end());
    const ValueId returned = ops_.meet("score", ready, {}, {inbox})[0];
    if (P_ > 1) pull_scores(returned, paid[2]);
    const ValueId scores = ops_.emit(
        "score", ops::kKeyScores, {thinned_[2], paid[0], paid[1], returned},
        [&](int r) { return key_scores(rows_, r, levels_.scoring, q_type(a_).shape[1]); })[0];
    ops_.meet("scored", {paid[2]}, {}, {});
    return scores;
  }

  // What other ranks' queries paid this rank's keys.
  void pull_scores(ValueId returned, ValueId paid) {
    ops_.emit(
        "score", ops::kPull, {returned, kNoValue, paid},
        [&](int r) {
          ops::MoveAttrs attrs{.rank = r, .moves = {}, .told = {}};
          for (const ReadRows& read : rows_.read(r)) {
            const int64_t row = rows_.thinned_row(read.part);
            attrs.moves.push_back({.peer = read.reader,
                                   .src = 2,
                                   .dst = 0,
                                   .rows = read.rows,
                                   .src_row = buffer_row(rows_.pulled(read.reader), r, true, row),
                                   .dst_row = read.row,
                                   .heads = a_.kv_heads});
          }
          return attrs;
        },
        kLinkTag);
  }

  LevelOps ops_;
  const SequenceAttention& a_;
  const AttentionInputs& in_;
  const bool beside_;
  const KeyLevels& levels_;
  const int P_;
  const LevelRows rows_;
  std::vector<ValueId> thinned_;         // k, v, and perhaps their order
  ValueId k_ = kNoValue, v_ = kNoValue;  // pulled
};

}  // namespace

AttentionOutputs lower_levels(std::span<Builder> builders, const SequenceAttention& attention,
                              const AttentionInputs& inputs, bool beside) {
  return Levels(builders, attention, inputs, beside).lower();
}

}  // namespace braid
