#include "braid/parallel/attention/cut_phases.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"

namespace braid {
namespace {

using ops::QSegment;
using Attention = ops::SegmentAttentionAttrs;

constexpr size_t kStates = 3;

// An attention's calls, on all ranks, in place of a call with phases.
class PhaseCalls {
 public:
  explicit PhaseCalls(const std::vector<const Op*>& ranks) : ranks_(ranks) {
    for (const Op* op : ranks_) {
      const auto& a = attrs(*op);
      last_ = std::max(last_, a.last_phase());
      for (const QSegment& s : a.q) {
        if (s.part == kLastPart || s.out != QSegment::Out::send) continue;
        sends_part_ = true;
        first_sent_ = std::min(first_sent_, s.phase);
      }
    }
  }

  // [calls][ranks]
  std::vector<std::vector<Op>> phase(int n) const {
    std::vector<std::vector<Op>> calls;
    const auto add = [&](bool begins, bool ends, const Seen& seen) {
      if (any(seen, ends) || (!begins && n > 0 && brings_keys(n))) {
        calls.push_back(call(begins, ends, seen, n));
      }
    };
    for (bool ends : {false, true}) {
      add(true, ends, [&](const QSegment& s) -> std::optional<Range> {
        if (s.phase != n || ends != (n == last_ && !waits(s))) return {};
        return Range{0, n + 1};
      });
    }
    add(false, n == last_, [&](const QSegment& s) -> std::optional<Range> {
      if (s.phase >= n || (waits(s) && n >= first_sent_)) return {};
      return Range{n, n + 1};
    });
    return calls;
  }

  // Queries of the last part, which wait until sent rows are done; none: no query waits.
  std::optional<std::vector<Op>> last_part() const {
    if (!sends_part_) return {};
    const Seen seen = [&](const QSegment& s) -> std::optional<Range> {
      if (!waits(s)) return {};
      return Range{std::max(s.phase + 1, first_sent_), last_ + 1};
    };
    return any(seen, true) ? std::optional(call(false, true, seen, last_)) : std::nullopt;
  }

  int last() const { return last_; }

 private:
  // The phases whose keys a Q segment takes in a call; none: the segment has no part in the call.
  using Seen = std::function<std::optional<Range>(const QSegment& segment)>;

  static const Attention& attrs(const Op& op) { return op.attrs.as<Attention>(); }
  bool waits(const QSegment& s) const { return sends_part_ && s.part == kLastPart; }

  static Range keys(const Attention& a, const QSegment& s, Range phases) {
    const auto first = [&](int64_t phase) {
      const auto it = std::ranges::lower_bound(a.kv, phase, {}, &ops::KvSegment::phase);
      return std::clamp<int64_t>(it - a.kv.begin(), s.kv_begin, s.kv_end);
    };
    return {first(phases.begin), first(phases.end)};
  }

  // Whether a call has work on some rank: keys to take, states to begin or results to make.
  bool any(const Seen& seen, bool ends) const {
    return std::ranges::any_of(ranks_, [&](const Op* op) {
      return std::ranges::any_of(attrs(*op).q, [&](const QSegment& s) {
        const auto phases = seen(s);
        return phases && (ends || phases->begin == 0 || keys(attrs(*op), s, *phases).size() > 0);
      });
    });
  }

  // Whether keys of this phase come to some rank, if only to a rank without queries: a call names
  // the keys, so the pull ends before the sync behind the call.
  bool brings_keys(int n) const {
    return std::ranges::any_of(ranks_, [&](const Op* op) {
      return std::ranges::count(attrs(*op).kv, n, &ops::KvSegment::phase) > 0;
    });
  }

  // An input's index among the call's inputs: used[i] says whether the call has input i.
  static int renumbered(const std::vector<bool>& used, size_t first, size_t step, int value) {
    int number = 0;
    for (int i = 0; i < value; ++i) number += used[first + step * static_cast<size_t>(i)] ? 1 : 0;
    return number;
  }

  // A call that names phase `n`'s keys.
  std::vector<Op> call(bool begins, bool ends, const Seen& seen, int n) const {
    const Op& whole = *ranks_[0];
    std::vector<bool> used(whole.inputs.size());
    std::fill_n(used.begin(), kStates, true);
    std::vector<Attention> made;
    for (const Op* op : ranks_) made.push_back(part(attrs(*op), begins, ends, seen, n, used));
    const size_t num_q = attrs(whole).num_q;
    const size_t first_key = Attention::kFirstQ + num_q;
    const auto q_end = used.begin() + static_cast<ptrdiff_t>(first_key);
    if (std::find(used.begin() + Attention::kFirstQ, q_end, true) == q_end) {
      used[Attention::kFirstQ] = true;  // a call without queries
    }
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || i < Attention::kFirstQ) inputs.push_back(used[i] ? whole.inputs[i] : kNoValue);
    }
    std::vector<Op> ops;
    for (Attention& a : made) {
      a.num_q = renumbered(used, Attention::kFirstQ, 1, static_cast<int>(num_q));
      for (QSegment& s : a.q) s.q = renumbered(used, Attention::kFirstQ, 1, s.q);
      for (ops::KvSegment& s : a.kv) s.kv = renumbered(used, first_key, 2, s.kv);
      ops.push_back(whole);
      ops.back().attrs = Attrs::of(std::move(a));
      ops.back().inputs = inputs;
    }
    return ops;
  }

  // A rank's part in a call, with all keys of phase `n`; marks the part's inputs.
  Attention part(const Attention& whole, bool begins, bool ends, const Seen& seen, int n,
                 std::vector<bool>& used) const {
    Attention a = whole;
    a.load_state = !begins;
    a.finalize = ends;
    a.q.clear();
    a.kv.clear();
    Range taken = keys(whole, {.kv_end = static_cast<int>(whole.kv.size())}, {n, n + 1});
    int64_t state_row = 0;
    for (const QSegment& s : whole.q) {
      if (const auto phases = seen(s)) {
        const Range in = keys(whole, s, *phases);
        if (in.size() > 0 && taken.size() > 0) {
          taken = {std::min(taken.begin, in.begin), std::max(taken.end, in.end)};
        } else if (in.size() > 0) {
          taken = in;
        }
        QSegment& q = a.q.emplace_back(s);
        q.state_row = state_row;
        q.kv_begin = static_cast<int>(in.begin), q.kv_end = static_cast<int>(in.end);
        q.phase = 0, q.part = kLastPart;
        used[Attention::kFirstQ + static_cast<size_t>(s.q)] = true;
        if (ends) use_results(s, used);
      }
      state_row += s.rows;
    }
    for (QSegment& q : a.q) {
      const bool sees = q.kv_end > q.kv_begin;
      q.kv_begin = sees ? q.kv_begin - static_cast<int>(taken.begin) : 0;
      q.kv_end = sees ? q.kv_end - static_cast<int>(taken.begin) : 0;
    }
    const size_t first_key = Attention::kFirstQ + static_cast<size_t>(whole.num_q);
    for (int64_t i = taken.begin; i < taken.end; ++i) {
      ops::KvSegment& kv = a.kv.emplace_back(whole.kv[i]);
      kv.phase = 0;
      for (size_t v : {0, 1}) used[first_key + 2 * static_cast<size_t>(kv.kv) + v] = true;
    }
    return a;
  }

  // Marks the destinations of a segment: a push follows rows stored at their owners, too.
  void use_results(const QSegment& s, std::vector<bool>& used) const {
    const auto use = [&](QSegment::Out out) {
      const size_t input = Attention::kFirstResult + static_cast<size_t>(out);
      if (ranks_[0]->inputs[input] != kNoValue) used[input] = true;
    };
    use(s.out);
    if (s.owner >= 0) use(waits(s) ? QSegment::Out::rest : QSegment::Out::send);
  }

  const std::vector<const Op*>& ranks_;
  int last_ = 0;
  bool sends_part_ = false;
  int first_sent_ = std::numeric_limits<int>::max();
};

class Cutter {
 public:
  Cutter(std::span<Program* const> programs, std::span<const KernelCatalog* const> kernels)
      : programs_(programs), kernels_(kernels) {}

  bool run() {
    bool any = false;
    for (size_t i = 0; i < programs_[0]->ops.size(); ++i) {
      if (op(0, i).def != &ops::kSegmentAttention || is_cut(i) || waits_inside(i)) continue;
      i = cut(i);
      any = true;
    }
    return any;
  }

 private:
  const Op& op(size_t rank, size_t i) const { return programs_[rank]->ops[i]; }

  bool is_cut(size_t i) const { return op(0, i).attrs.as<Attention>().carries_state(); }

  static bool writes(const Op& op, ValueId value) {
    return std::ranges::count(op.outputs, value) > 0 ||
           std::ranges::any_of(op.def->mutated_inputs,
                               [&](int input) { return op.inputs[input] == value; });
  }
  static bool names(const Op& op, ValueId value) {
    return value != kNoValue && std::ranges::count(op.inputs, value) > 0;
  }

  // The first phase of an input on any rank; -1: no rank reads the input.
  int phase_of(size_t i, size_t input) const {
    int phase = -1;
    for (size_t r = 0; r < programs_.size(); ++r) {
      const int first = op(r, i).attrs.as<Attention>().phase_of(input);
      if (first >= 0) phase = phase < 0 ? first : std::min(phase, first);
    }
    return phase;
  }

  // The op before op i that makes a value, found from op i back; 0: no op makes it.
  size_t maker_of(ValueId value, size_t i) const {
    while (i > 0 && std::ranges::count(op(0, i).outputs, value) == 0) --i;
    return i;
  }

  bool is_pulled(size_t i, size_t input) const {
    const ValueId value = op(0, i).inputs[input];
    const size_t maker = maker_of(value, i);
    const std::span since = std::span(programs_[0]->ops).subspan(maker, i - maker);
    return std::ranges::any_of(
        since, [&](const Op& other) { return other.def == &ops::kPull && writes(other, value); });
  }

  // Queries already present begin in phase 0, whenever a whole call would take them.
  void begin_at_once(size_t i) {
    for (Program* program : programs_) {
      Attention a = program->ops[i].attrs.as<Attention>();
      for (QSegment& s : a.q) {
        if (!is_pulled(i, Attention::kFirstQ + static_cast<size_t>(s.q))) s.phase = 0;
      }
      program->ops[i].attrs = Attrs::of(std::move(a));
    }
  }

  // The last pull before op i that brings inputs of this phase; none: i.
  size_t pull_of(size_t i, int phase) const {
    for (size_t j = i; j-- > 0;) {
      if (op(0, j).def != &ops::kPull) continue;
      for (size_t input = Attention::kFirstQ; input < op(0, i).inputs.size(); ++input) {
        if (writes(op(0, j), op(0, i).inputs[input]) && phase_of(i, input) == phase) return j;
      }
    }
    return i;
  }

  bool waits_inside(size_t i) const {
    for (size_t r = 0; r < programs_.size(); ++r) {
      if (kernels_.empty()) return false;
      const Program& program = *programs_[r];
      const KernelInfo info =
          kernels_[r % kernels_.size()]->find(program, op(r, i), Stream::compute, program.capacity);
      if (!info.waits_inside) return false;
    }
    return !meets_between(i);
  }

  // Whether an op other than a pull reads data of a later phase before op i.
  bool meets_between(size_t i) const {
    std::vector<ValueId> pulled;
    for (size_t input = Attention::kFirstQ; input < op(0, i).inputs.size(); ++input) {
      if (phase_of(i, input) > 0) pulled.push_back(op(0, i).inputs[input]);
    }
    size_t first = i;
    for (ValueId value : pulled) first = std::min(first, maker_of(value, i));
    std::vector<ValueId> here;
    for (size_t j = first; j < i; ++j) {
      for (ValueId value : pulled) {
        if (op(0, j).def != &ops::kPull) {
          if (std::ranges::count(here, value) > 0 && names(op(0, j), value)) return true;
        } else if (writes(op(0, j), value)) {
          here.push_back(value);
        }
      }
    }
    return false;
  }

  // Returns the index of the last op in place of op i.
  size_t cut(size_t i) {
    std::vector<const Op*> whole;
    for (size_t r = 0; r < programs_.size(); ++r) whole.push_back(&op(r, i));
    if (std::ranges::all_of(whole,
                            [](const Op* op) { return op->attrs.as<Attention>().q.empty(); })) {
      return i;  // a call for the sake of order alone
    }
    begin_at_once(i);
    make_room(i);
    const PhaseCalls calls(whole);
    std::vector<std::vector<Op>> made;
    for (int n = 0; n <= calls.last(); ++n) {
      const std::string& scope = op(0, n > 0 ? pull_of(i, n) : i).scope;
      for (std::vector<Op>& call : calls.phase(n)) {
        for (Op& op : call) op.scope = scope;
        made.push_back(std::move(call));
      }
    }
    const auto rest = calls.last_part();
    const size_t after = rest ? after_parts(i) : i;
    for (size_t r = 0; r < programs_.size(); ++r) {
      std::vector<Op>& ops = programs_[r]->ops;
      const auto at = [&](size_t place) { return ops.begin() + static_cast<ptrdiff_t>(place); };
      if (rest) ops.insert(at(after + 1), (*rest)[r]);
      ops.erase(at(i));
      std::vector<Op> own;  // inserted at once: the Program's other ops move one time
      for (std::vector<Op>& call : made) own.push_back(std::move(call[r]));
      ops.insert(at(i), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
    }
    return i + made.size() - 1;
  }

  // The last op after op i that takes parts before the last, before any op that takes the last.
  size_t after_parts(size_t i) const {
    const std::span results =
        std::span(op(0, i).inputs).subspan(Attention::kFirstResult, Attention::kFirstQ - kStates);
    size_t last = i;
    for (size_t j = i + 1; j < programs_[0]->ops.size(); ++j) {
      if (std::ranges::none_of(results, [&](ValueId v) { return names(op(0, j), v); })) continue;
      bool partial = true;
      for (size_t r = 0; r < programs_.size(); ++r) {
        partial = partial && op(r, i).def->phases->part_for(op(r, i), op(r, j)) != kLastPart;
      }
      if (partial) {
        last = j;
      } else if (names(op(0, j), results[static_cast<size_t>(QSegment::Out::o)]) ||
                 names(op(0, j), results[static_cast<size_t>(QSegment::Out::rest)])) {
        break;
      }
    }
    return last;
  }

  // Gives the states a row for each query.
  void make_room(size_t i) {
    int64_t most = 1;
    for (size_t r = 0; r < programs_.size(); ++r) {
      int64_t rows = 0;
      for (QSegment s : op(r, i).attrs.as<Attention>().q) rows += s.rows;
      most = std::max(most, rows);
    }
    for (Program* program : programs_) {
      const std::vector<ValueId> states(program->ops[i].inputs.begin(),
                                        program->ops[i].inputs.begin() + kStates);
      for (ValueId state : states) program->values[state].type.shape[1] = most;
      Op& maker = program->ops[maker_of(states[0], i)];
      BRAID_CHECK(maker.def == &ops::kBuffers && maker.outputs == states);
      ops::BuffersAttrs buffers{{}};
      for (ValueId state : states) buffers.types.push_back(program->value(state).type);
      maker.attrs = Attrs::of(buffers);
    }
  }

  const std::span<Program* const> programs_;
  const std::span<const KernelCatalog* const> kernels_;
};

}  // namespace

bool cut_phases(std::span<Program* const> programs, std::span<const KernelCatalog* const> kernels) {
  return Cutter(programs, kernels).run();
}

}  // namespace braid
