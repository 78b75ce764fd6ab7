#pragma once

#include <map>
#include <random>

#include "braid/schedule/partition.h"
#include "unit/schedule/planned_decoder.h"

namespace braid::testing_schedule {

// Runs a step of all ranks in an order of its choice, on a memory that holds, instead of numbers,
// whose they are, and says what went wrong. Shares no code with the verifier: order comes from
// streams and waits as they stand, hazards from labels that are found to be wrong.
//
// For each launch there is an order that begins it as early and ends it as late as streams and
// waits allow, with everything else run in between: two launches that are not ordered and touch the
// same bytes meet in one of these.
class StepOracle {
 public:
  // A step of full micro-batches, or of some sizes within their capacity.
  StepOracle(const Planned& plan, std::mt19937_64& rng, bool full) : plan_(plan), rng_(rng) {
    M_ = plan.micro_batches.size();
    for (const MicroBatch& mb : plan.micro_batches) {
      const auto some = [&](int64_t most) {
        return full ? most : static_cast<int64_t>(rng() % static_cast<uint64_t>(most + 1));
      };
      counts_.push_back({.token = std::max<int64_t>(some(mb.capacity.token), 1),
                         .sequence = std::max<int64_t>(some(mb.capacity.sequence), 1),
                         .row = some(mb.capacity.row)});
    }
    for (size_t r = 0; r < plan.programs.size(); ++r) describe(r);
  }

  // The first hazard of any order, or nothing.
  std::string hazard() {
    if (std::string bad = run_in_recorded_order(); !bad.empty()) return bad;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t i = 0; i < ranks_[r].launches.size(); ++i) {
        if (std::string bad = run_holding(r, static_cast<int>(i)); !bad.empty()) return bad;
      }
    }
    return "";
  }

 private:
  static constexpr int64_t kGarbage = -1;
  struct Access {
    size_t begin = 0, end = 0;  // cells
    int64_t label = 0;
  };
  struct Step {
    std::vector<Access> reads, writes;  // scratch is a write that leaves garbage
    int comm = -1;                      // place among its stream's communication
  };
  struct Rank {
    std::vector<Step> launches;
    std::vector<int64_t> initial;  // label of each cell before the step
    std::vector<Access> after;     // what is there after the step
    std::string broken;            // what no order can mend
    std::array<std::vector<int>, kNumStreams> queue;
    std::array<std::vector<int>, kNumStreams> comms;
  };
  struct State {  // of a rank, while a step runs
    std::vector<int64_t> cells;
    std::vector<int> phase;  // [launches] 0 waiting, 1 running, 2 ended
    std::array<size_t, kNumStreams> next{};
    std::array<int, kNumStreams> running{-1, -1, -1};
  };

  const Launch& launch(size_t r, int i) const {
    return plan_.schedules[r].launches[static_cast<size_t>(i)];
  }
  int64_t label(ValueId id, size_t mb) const {
    return static_cast<int64_t>(id) * 16 + static_cast<int64_t>(mb);
  }

  Extents count(size_t r, size_t mb) const {
    Extents n = counts_[mb];
    n.shard =
        even_part(n.token, static_cast<int64_t>(plan_.programs.size()), static_cast<int64_t>(r))
            .size();
    return n;
  }

  // Bytes of a value that a micro-batch owns.
  Range bytes(size_t r, ValueId id, size_t mb) const {
    const Value& value = plan_.programs[r].value(id);
    const MemoryPlan& memory = plan_.schedules[r].memory;
    const int64_t base = memory.offset(id, static_cast<int>(mb));
    const int64_t whole = value.type.shape.elems() * 4;
    if (value.kind == ValueKind::input || value.type.axis == BatchAxis::none) {
      return {base, base + whole};
    }
    const int64_t row = whole / value.type.shape[0];
    int64_t begin = base;
    if (memory.merged[static_cast<size_t>(id)]) {
      for (size_t before = 0; before < mb; ++before) {
        begin += count(r, before).of(value.type.axis, 0) * row;
      }
    }
    return {begin, begin + count(r, mb).of(value.type.axis, 0) * row};
  }

  void describe(size_t r) {
    const Program& program = plan_.programs[r];
    const Schedule& schedule = plan_.schedules[r];
    Rank& rank = ranks_.emplace_back();
    struct Raw {
      Range bytes;
      int64_t label;
    };
    std::vector<std::vector<Raw>> reads, writes;
    std::vector<Raw> initial, after;
    std::vector<int64_t> ends = {0};
    const auto note = [&](std::vector<Raw>& list, Range b, int64_t l) {
      if (b.begin < 0 || b.end > schedule.memory.arena_bytes) rank.broken = "outside the arena";
      if (b.empty()) return;
      list.push_back({b, l});
      ends.insert(ends.end(), {b.begin, b.end});
    };
    std::map<std::pair<int, size_t>, int> ran;
    // States are cells behind the arena, one for each micro-batch.
    std::map<ValueId, int64_t> states;
    for (size_t v = 0; v < program.values.size(); ++v) {
      if (program.values[v].kind != ValueKind::state) continue;
      const auto id = static_cast<ValueId>(v);
      states[id] = schedule.memory.arena_bytes + static_cast<int64_t>(states.size() * M_);
    }
    const auto state_cell = [&](ValueId id, size_t mb) {
      const int64_t at = states.at(id) + static_cast<int64_t>(mb);
      ends.insert(ends.end(), {at, at + 1});
      return Range{at, at + 1};
    };
    for (int i = 0; i < static_cast<int>(schedule.launches.size()); ++i) {
      const Launch& l = launch(r, i);
      const Op& op = schedule.op(program, l);
      auto& in = reads.emplace_back();
      auto& out = writes.emplace_back();
      const auto mb_end = static_cast<size_t>(l.micro_batch_end());
      if (mb_end > M_) rank.broken = "a launch names micro-batches that are not there";
      for (auto mb = static_cast<size_t>(l.micro_batch); mb < std::min(mb_end, M_); ++mb) {
        for (int o = l.op; o < l.op_end(); ++o) ++ran[{o, mb}];
        for (size_t k = 0; k < op.inputs.size(); ++k) {
          const ValueId id = op.inputs[k];
          if (id == kNoValue) continue;
          const ValueKind kind = program.value(id).kind;
          if (kind == ValueKind::input) note(in, bytes(r, id, 0), label(id, 0));
          if (kind == ValueKind::computed) note(in, bytes(r, id, mb), label(id, mb));
          if (kind != ValueKind::state) continue;
          const auto& mutated = op.def->mutated_inputs;
          if (std::ranges::find(mutated, static_cast<int>(k)) != mutated.end()) {
            out.push_back({state_cell(id, mb), label(id, mb)});
            continue;
          }
          for (size_t from = mb;; --from) {
            in.push_back({state_cell(id, from), label(id, from)});
            if (from == 0 || !plan_.micro_batches[from].continues) break;
          }
        }
        for (ValueId id : op.outputs) note(out, bytes(r, id, mb), label(id, mb));
      }
      // A merged launch works on one buffer, its first micro-batch's.
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (ValueId id : *ids) {
          if (l.num_micro_batches == 1 || id == kNoValue) continue;
          if (program.value(id).kind == ValueKind::computed &&
              !schedule.memory.merged[static_cast<size_t>(id)]) {
            rank.broken = "a merged launch finds other micro-batches elsewhere";
          }
        }
      }
      if (const int64_t n = l.kernel.workspace_bytes; n > 0) {
        const int64_t at = schedule.memory.workspace_offset[static_cast<size_t>(i)];
        note(out, {at, at + n}, kGarbage);
      }
      auto& queue = rank.queue[static_cast<size_t>(l.stream)];
      queue.push_back(i);
      rank.launches.emplace_back();
      if (communicates(op)) {
        auto& comms = rank.comms[static_cast<size_t>(l.stream)];
        rank.launches.back().comm = static_cast<int>(comms.size());
        comms.push_back(i);
      }
    }
    for (int o = 0; o < static_cast<int>(program.ops.size()); ++o) {
      for (size_t mb = 0; mb < M_; ++mb) {
        if (ran[{o, mb}] != 1) rank.broken = fmt::format("op {} runs {} times", o, ran[{o, mb}]);
      }
    }
    for (size_t v = 0; v < program.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      if (program.values[v].kind != ValueKind::input) continue;
      note(initial, bytes(r, id, 0), label(id, 0));
      note(after, bytes(r, id, 0), label(id, 0));
    }
    for (ValueId id : program.outputs) {
      for (size_t mb = 0; mb < M_; ++mb) note(after, bytes(r, id, mb), label(id, mb));
    }
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    const auto cell = [&](int64_t byte) {
      return static_cast<size_t>(std::ranges::lower_bound(ends, byte) - ends.begin());
    };
    const auto place = [&](const std::vector<Raw>& raw) {
      std::vector<Access> result;
      for (const Raw& x : raw) result.push_back({cell(x.bytes.begin), cell(x.bytes.end), x.label});
      return result;
    };
    for (size_t i = 0; i < rank.launches.size(); ++i) {
      rank.launches[i].reads = place(reads[i]);
      rank.launches[i].writes = place(writes[i]);
    }
    rank.after = place(after);
    rank.initial.assign(ends.size(), kGarbage);
    for (const Access& a : place(initial)) {
      std::fill(rank.initial.begin() + static_cast<int64_t>(a.begin),
                rank.initial.begin() + static_cast<int64_t>(a.end), a.label);
    }
  }

  void start() {
    bad_.clear();
    states_.assign(ranks_.size(), {});
    for (size_t r = 0; r < ranks_.size(); ++r) {
      states_[r].cells = ranks_[r].initial;
      states_[r].phase.assign(ranks_[r].launches.size(), 0);
      if (!ranks_[r].broken.empty()) bad_ = ranks_[r].broken;
    }
  }

  void expect(size_t r, int i, const std::vector<Access>& accesses, const char* when) {
    for (const Access& a : accesses) {
      for (size_t c = a.begin; c < a.end; ++c) {
        if (states_[r].cells[c] == a.label) continue;
        bad_ = fmt::format("rank {}: launch {} {}: finds {} for {}", r, i, when,
                           states_[r].cells[c], a.label);
      }
    }
  }
  void fill(size_t r, const Access& a, int64_t with) {
    for (size_t c = a.begin; c < a.end; ++c) states_[r].cells[c] = with;
  }
  static int64_t busy(int i) { return -100 - i; }

  bool can_begin(size_t r, int i) const {
    const State& s = states_[r];
    const auto stream = static_cast<size_t>(launch(r, i).stream);
    const auto& queue = ranks_[r].queue[stream];
    if (s.running[stream] >= 0 || s.next[stream] == queue.size() || queue[s.next[stream]] != i) {
      return false;
    }
    const auto ended = [&](const Wait& w) { return s.phase[static_cast<size_t>(w.launch)] == 2; };
    return std::ranges::all_of(launch(r, i).waits, ended);
  }
  void begin(size_t r, int i) {
    State& s = states_[r];
    const Step& step = ranks_[r].launches[static_cast<size_t>(i)];
    expect(r, i, step.reads, "begins");
    for (const Access& a : step.writes) fill(r, a, busy(i));
    const auto stream = static_cast<size_t>(launch(r, i).stream);
    s.phase[static_cast<size_t>(i)] = 1;
    s.running[stream] = i;
    ++s.next[stream];
  }
  // A communication ends once all ranks have come to it.
  bool can_end(size_t r, int i) {
    const Step& step = ranks_[r].launches[static_cast<size_t>(i)];
    if (step.comm < 0) return true;
    const auto stream = static_cast<size_t>(launch(r, i).stream);
    const auto n = static_cast<size_t>(step.comm);
    for (size_t q = 0; q < ranks_.size(); ++q) {
      const auto& comms = ranks_[q].comms[stream];
      if (n >= comms.size()) return false;
      if (states_[q].phase[static_cast<size_t>(comms[n])] == 0) return false;
      const Launch &a = launch(r, i), &b = launch(q, comms[n]);
      if (a.op != b.op || a.num_ops != b.num_ops || a.micro_batch != b.micro_batch ||
          a.num_micro_batches != b.num_micro_batches) {
        bad_ = fmt::format("ranks {} and {} meet in different communication", r, q);
      }
    }
    return true;
  }
  void end(size_t r, int i) {
    State& s = states_[r];
    const Step& step = ranks_[r].launches[static_cast<size_t>(i)];
    expect(r, i, step.reads, "ends");
    for (const Access& a : step.writes) {
      expect(r, i, {{a.begin, a.end, busy(i)}}, "wrote");
      fill(r, a, a.label);
    }
    s.phase[static_cast<size_t>(i)] = 2;
    s.running[static_cast<size_t>(launch(r, i).stream)] = -1;
  }

  // Events among the launches that `may` allows, at random, until there is none.
  template <class May>
  void drain(May&& may, bool hold, size_t held_rank, int held) {
    const size_t lanes = ranks_.size() * kNumStreams;
    for (bool moved = true; moved && bad_.empty();) {
      moved = false;
      const size_t from = rng_() % lanes;
      for (size_t k = 0; k < lanes && bad_.empty(); ++k) {
        const size_t lane = (from + k) % lanes, r = lane / kNumStreams, s = lane % kNumStreams;
        State& state = states_[r];
        if (const int i = state.running[s]; i >= 0) {
          if ((hold && r == held_rank && i == held) || !can_end(r, i)) continue;
          end(r, i);
          moved = true;
          continue;
        }
        if (state.next[s] == ranks_[r].queue[s].size()) continue;
        const int i = ranks_[r].queue[s][state.next[s]];
        if (!may(r, i) || !can_begin(r, i)) continue;
        begin(r, i);
        moved = true;
      }
    }
  }

  std::string finish() {
    for (size_t r = 0; r < ranks_.size() && bad_.empty(); ++r) {
      for (size_t i = 0; i < states_[r].phase.size(); ++i) {
        if (states_[r].phase[i] == 2) continue;
        return fmt::format("deadlock: rank {} stands before launch {}", r, i);
      }
      expect(r, -1, ranks_[r].after, "after the step");
    }
    return bad_;
  }

  // What must have run before a launch can begin, over all ranks.
  void add_ancestors(size_t r, int i, std::vector<std::vector<bool>>& in) const {
    const auto visit = [&](size_t q, int j) {
      if (j < 0 || j >= static_cast<int>(in[q].size()) || in[q][static_cast<size_t>(j)]) return;
      in[q][static_cast<size_t>(j)] = true;
      add_ancestors(q, j, in);
      const Step& step = ranks_[q].launches[static_cast<size_t>(j)];
      if (step.comm < 0) return;
      for (size_t p = 0; p < ranks_.size(); ++p) {
        const auto& comms = ranks_[p].comms[static_cast<size_t>(launch(q, j).stream)];
        if (static_cast<size_t>(step.comm) >= comms.size()) continue;
        const int twin = comms[static_cast<size_t>(step.comm)];
        if (in[p][static_cast<size_t>(twin)]) continue;
        in[p][static_cast<size_t>(twin)] = true;
        add_ancestors(p, twin, in);
      }
    };
    const auto& queue = ranks_[r].queue[static_cast<size_t>(launch(r, i).stream)];
    for (int j : queue) {
      if (j == i) break;
      visit(r, j);
    }
    for (const Wait& wait : launch(r, i).waits) visit(r, wait.launch);
  }

  std::string run_holding(size_t r, int i) {
    start();
    std::vector<std::vector<bool>> early(ranks_.size());
    for (size_t q = 0; q < ranks_.size(); ++q) early[q].assign(ranks_[q].launches.size(), false);
    add_ancestors(r, i, early);
    early[r][static_cast<size_t>(i)] = true;
    drain([&](size_t q, int j) { return static_cast<bool>(early[q][static_cast<size_t>(j)]); },
          true, r, i);
    const auto any = [](size_t, int) { return true; };
    drain(any, true, r, i);
    drain(any, false, r, i);
    return finish();
  }

  // Each rank one launch at a time.
  std::string run_in_recorded_order() {
    start();
    std::vector<int> at(ranks_.size(), 0);
    for (bool moved = true; moved && bad_.empty();) {
      moved = false;
      for (size_t r = 0; r < ranks_.size() && bad_.empty(); ++r) {
        if (at[r] == static_cast<int>(ranks_[r].launches.size())) continue;
        if (states_[r].phase[static_cast<size_t>(at[r])] == 0) {
          if (!can_begin(r, at[r])) continue;
          begin(r, at[r]);
          moved = true;
        }
        if (!can_end(r, at[r])) continue;
        end(r, at[r]++);
        moved = true;
      }
    }
    return finish();
  }

  const Planned& plan_;
  std::mt19937_64& rng_;
  size_t M_ = 1;
  std::vector<Extents> counts_;
  std::vector<Rank> ranks_;
  std::vector<State> states_;
  std::string bad_;
};

}  // namespace braid::testing_schedule
