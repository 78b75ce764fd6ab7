#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/schedule.h"

namespace braid::testing_schedule {

// What the Schedules of all ranks order, as a graph of events, and which accesses of memory they
// leave in no order. Shares no code with the verifier: the graph is closed by reachability, and
// syncs are no accesses, only edges: a race is two physical accesses of common bytes.
//
// Events of a launch: its begin, its end, the begin of each phase (what the launch waits for in it
// has ended), the end of early results, and the arrival of a push at its peers.
class HappensBefore {
 public:
  HappensBefore(const std::vector<Program>& programs, const std::vector<Schedule>& schedules)
      : programs_(programs), schedules_(schedules) {
    for (size_t r = 0; r < programs.size(); ++r) add_rank(r);
    for (size_t r = 0; r < programs.size(); ++r) add_meetings(r);
    close();
  }

  // Launch a has ended when launch b begins, on one rank.
  bool before(size_t rank, int a, int b) const {
    return reaches(event(rank, a).end, event(rank, b).begin);
  }

  // The first two accesses of common bytes in no order, one a write, or in the wrong one.
  std::string race() {
    if (cycle_) return "a cycle";
    memory_.assign(programs_.size(), {});
    for (size_t r = 0; r < programs_.size(); ++r) add_accesses(r);
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (const Access& a : memory_[r]) {
        for (const Access& b : memory_[r]) {
          if (&a >= &b || !(a.writes || b.writes) || !meet(a, b)) continue;
          if (reaches(a.end, b.begin) && (a.value != b.value || a.op <= b.op)) continue;
          if (reaches(b.end, a.begin) && (a.value != b.value || b.op <= a.op)) continue;
          return fmt::format("memory of rank {}: {} and {}", r, a.what, b.what);
        }
      }
    }
    return "";
  }

 private:
  struct Events {
    int begin = 0, end = 0;
    std::vector<int> phases;  // [last phase + 1]
    int early = 0;            // early results are written
    int arrived = 0;          // what a push moves is at its peers
  };
  struct Access {
    int value = 0;  // with its micro-batch
    int op = 0;
    bool writes = false;
    int begin = 0, end = 0;
    int64_t first = 0, last = 0;  // bytes of the value's place
    int64_t row = 0, rows = 0, head = 0, heads = 0;
    bool atomic = false;
    std::string what;
  };

  const Launch& launch(size_t r, int i) const {
    return schedules_[r].launches[static_cast<size_t>(i)];
  }
  const Op& op(size_t r, int i) const { return schedules_[r].op(programs_[r], launch(r, i)); }
  const Events& event(size_t r, int i) const { return events_[r][static_cast<size_t>(i)]; }
  int node() {
    edges_.emplace_back();
    return static_cast<int>(edges_.size()) - 1;
  }
  void edge(int from, int to) { edges_[static_cast<size_t>(from)].push_back(to); }

  void add_rank(size_t r) {
    auto& events = events_.emplace_back();
    step_begin_.push_back(node());
    step_end_.push_back(node());
    std::map<Stream, int> last;
    for (int i = 0; i < std::ssize(schedules_[r].launches); ++i) {
      const Launch& l = launch(r, i);
      Events e{.begin = node(), .end = node(), .phases = {}, .early = node(), .arrived = node()};
      edge(e.begin, e.early), edge(e.early, e.end), edge(e.begin, e.arrived);
      edge(step_begin_[r], e.begin), edge(e.end, step_end_[r]);
      if (last.count(l.stream)) edge(last[l.stream], e.begin);
      last[l.stream] = e.end;
      e.phases.push_back(e.begin);
      for (const Wait& wait : l.waits) {
        const Events& awaited = events[static_cast<size_t>(wait.launch)];
        if (wait.partial()) {
          edge(awaited.begin, e.begin), edge(awaited.end, e.arrived);
          continue;
        }
        while (static_cast<int>(e.phases.size()) <= wait.phase) {
          e.phases.push_back(node());
          edge(e.begin, e.phases.back()), edge(e.phases.back(), e.end);
        }
        edge(awaited.end, e.phases[static_cast<size_t>(wait.phase)]);
      }
      events.push_back(e);
    }
  }

  void add_meetings(size_t r) {
    for (int i = 0; i < std::ssize(schedules_[r].launches); ++i) {
      if (op(r, i).def != &ops::kSync) continue;
      const auto& sync = op(r, i).attrs.as<ops::SyncAttrs>();
      for (int peer : sync.group) {
        const int there = find(static_cast<size_t>(peer), launch(r, i));
        edge(event(static_cast<size_t>(peer), there).begin, event(r, i).end);
      }
      for (size_t p = 0; p < sync.arrivals.size(); ++p) {
        int64_t left = sync.arrivals[p];
        for (int j = 0; j < std::ssize(schedules_[p].launches) && left > 0; ++j) {
          const Op& push = op(p, j);
          if (push.def != &ops::kPush || launch(p, j).micro_batch != launch(r, i).micro_batch ||
              push.inputs[0] != op(r, i).inputs[ops::kSyncArrivals] ||
              std::ranges::count(push.attrs.as<ops::MoveAttrs>().peers(), static_cast<int>(r)) ==
                  0) {
            continue;
          }
          edge(event(p, j).arrived, event(r, i).end);
          --left;
        }
      }
    }
  }
  int find(size_t r, const Launch& like) const {
    for (int i = 0; i < std::ssize(schedules_[r].launches); ++i) {
      if (launch(r, i).op == like.op && launch(r, i).micro_batch == like.micro_batch) return i;
    }
    return 0;
  }

  void close() {
    const size_t n = edges_.size();
    std::vector<int> incoming(n), order;
    for (const auto& to : edges_) {
      for (int t : to) ++incoming[static_cast<size_t>(t)];
    }
    for (size_t i = 0; i < n; ++i) {
      if (incoming[i] == 0) order.push_back(static_cast<int>(i));
    }
    for (size_t k = 0; k < order.size(); ++k) {
      for (int t : edges_[static_cast<size_t>(order[k])]) {
        if (--incoming[static_cast<size_t>(t)] == 0) order.push_back(t);
      }
    }
    cycle_ = order.size() < n;
    reach_.assign(n, std::vector<uint64_t>(n / 64 + 1));
    for (auto from = order.rbegin(); from != order.rend(); ++from) {
      auto& reach = reach_[static_cast<size_t>(*from)];
      const auto self = static_cast<size_t>(*from);
      reach[self / 64] |= uint64_t{1} << (self % 64);
      for (int to : edges_[self]) {
        for (size_t k = 0; k < reach.size(); ++k) reach[k] |= reach_[static_cast<size_t>(to)][k];
      }
    }
  }
  bool reaches(int from, int to) const {
    const auto bit = static_cast<size_t>(to);
    return (reach_[static_cast<size_t>(from)][bit / 64] >> (bit % 64) & 1) != 0;
  }

  static bool meet(const Access& a, const Access& b) {
    if (a.last <= b.first || b.last <= a.first || (a.atomic && b.atomic)) return false;
    return a.value != b.value || (a.row < b.row + b.rows && b.row < a.row + a.rows &&
                                  a.head < b.head + b.heads && b.head < a.head + a.heads);
  }

  // An access of rank `owner`'s copy of a value by a launch of rank r.
  void add(size_t owner, size_t r, int i, ValueId id, bool writes, int begin, int end,
           int64_t row = 0, int64_t rows = std::numeric_limits<int64_t>::max() / 2,
           int64_t head = 0, int64_t heads = std::numeric_limits<int64_t>::max() / 2) {
    const Program& program = programs_[owner];
    if (id == kNoValue || rows == 0 || heads == 0) return;
    if (program.value(id).kind == ValueKind::weight) return;
    const int mb = launch(r, i).micro_batch;
    Access a{.value = id * 16 + mb,
             .op = launch(r, i).op,
             .writes = writes,
             .begin = begin,
             .end = end,
             .row = row,
             .rows = rows,
             .head = head,
             .heads = heads,
             .atomic = op(r, i).def == &ops::kPush && id == op(r, i).inputs[0],
             .what = {}};
    const MemoryPlan& memory = schedules_[owner].memory;
    a.first = memory.offset(id, mb);
    a.last = a.first +
             (memory.merged[static_cast<size_t>(id)]
                  ? bytes_of(program.value(id).type)
                  : bytes_of(program.type_of(
                        id, schedules_[owner].micro_batches[static_cast<size_t>(mb)].capacity)));
    // Micro-batches of a merged buffer have rows of their own, one sequence each in these tests.
    if (memory.merged[static_cast<size_t>(id)] && memory.micro_batches > 1 &&
        program.value(id).type.axis == BatchAxis::sequence) {
      const int64_t each = (a.last - a.first) / memory.micro_batches;
      a.first += each * mb;
      a.last = a.first + each;
    }
    a.what = fmt::format("{} at '{}' of rank {} (launch {}) {} %{}", op(r, i).def->kind,
                         op(r, i).scope, r, i, writes ? "writes" : "reads", id);
    memory_[owner].push_back(std::move(a));
  }

  void add_accesses(size_t r) {
    for (int i = 0; i < std::ssize(schedules_[r].launches); ++i) {
      const Op& o = op(r, i);
      const Events& e = event(r, i);
      if (o.def == &ops::kBuffers) continue;
      if (o.def == &ops::kSync) {  // zeroes counters before it meets
        for (int k : o.attrs.as<ops::SyncAttrs>().opened_arrivals) {
          add(r, r, i, o.outputs[static_cast<size_t>(k)], true, e.begin, e.begin);
        }
        if (const ValueId id = o.inputs[ops::kSyncArrivals]; id != kNoValue) {
          add(r, r, i, id, false, e.begin, e.end);
          memory_[r].back().atomic = true;
        }
      } else if (o.def == &ops::kPull || o.def == &ops::kPush) {
        add_moves(r, i);
      } else if (o.def == &ops::kSegmentAttention) {
        add_attention(r, i);
      } else {
        const auto& mutated = o.def->mutated_inputs;
        for (size_t k = 0; k < o.inputs.size(); ++k) {
          add(r, r, i, o.inputs[k], std::ranges::count(mutated, static_cast<int>(k)) > 0, e.begin,
              e.end);
        }
        for (ValueId id : o.outputs) add(r, r, i, id, true, e.begin, e.end);
      }
    }
    // The host's: inputs all the time, outputs after the step; of each micro-batch.
    for (int i = 0; i < std::ssize(schedules_[r].launches); ++i) {
      if (launch(r, i).op != schedules_[r].launches.back().op) continue;
      for (size_t v = 0; v < programs_[r].values.size(); ++v) {
        const auto id = static_cast<ValueId>(v);
        if (programs_[r].values[v].kind == ValueKind::input) {
          add(r, r, i, id, false, step_begin_[r], step_end_[r]);
          memory_[r].back().value = -1 - id;
        } else if (std::ranges::count(programs_[r].outputs, id) > 0) {
          add(r, r, i, id, false, step_end_[r], step_end_[r]);
          memory_[r].back().op = std::numeric_limits<int>::max();
        }
      }
    }
  }

  void add_moves(size_t r, int i) {
    const Op& o = op(r, i);
    const Events& e = event(r, i);
    const auto& attrs = o.attrs.as<ops::MoveAttrs>();
    const bool pulls = o.def == &ops::kPull;
    // Transfers of early results begin when these are there, whatever the push waits for.
    int begin = e.begin;
    for (const Wait& wait : launch(r, i).waits) {
      if (wait.partial()) begin = event(r, wait.launch).early;
    }
    for (const ops::Move& m : attrs.moves) {
      const auto peer = static_cast<size_t>(m.peer);
      const ValueId src = o.inputs[static_cast<size_t>(m.src)];
      const ValueId dst = o.inputs[static_cast<size_t>(m.dst)];
      add(pulls ? peer : r, r, i, src, false, begin, e.end, m.src_row, m.rows, m.src_head, m.heads);
      add(pulls ? r : peer, r, i, dst, true, begin, pulls ? e.end : e.arrived, m.dst_row, m.rows,
          m.dst_head, m.heads);
    }
    if (pulls) return;
    for (int peer : attrs.peers()) {
      add(static_cast<size_t>(peer), r, i, o.inputs[0], true, begin, e.arrived);
    }
  }

  void add_attention(size_t r, int i) {
    const Op& o = op(r, i);
    const Events& e = event(r, i);
    const auto& a = o.attrs.as<ops::SegmentAttentionAttrs>();
    const auto phase = [&](int phase) {
      return e.phases[std::min(static_cast<size_t>(phase), e.phases.size() - 1)];
    };
    for (size_t k = 0; k < 3 && a.carries_state(); ++k) {
      add(r, r, i, o.inputs[k], true, e.begin, e.end);
    }
    const size_t first_kv = a.kFirstQ + static_cast<size_t>(a.num_q);
    for (const ops::KvSegment& s : a.kv) {
      for (size_t v : {0, 1}) {
        add(r, r, i, o.inputs[first_kv + 2 * static_cast<size_t>(s.kv) + v], false, phase(s.phase),
            e.end, s.row, s.rows, s.head, a.kv_heads);
      }
    }
    for (const ops::QSegment& s : a.q) {
      add(r, r, i, o.inputs[a.kFirstQ + static_cast<size_t>(s.q)], false, phase(s.phase), e.end,
          s.row, s.rows, s.head, a.heads);
      if (!a.finalize) continue;
      add(s.owner < 0 ? r : static_cast<size_t>(s.owner), r, i,
          o.inputs[a.kFirstResult + static_cast<size_t>(s.out)], true, e.begin,
          s.part != kLastPart ? e.early : e.end, s.out_row, s.rows, s.out_head, a.heads);
    }
  }

  const std::vector<Program>& programs_;
  const std::vector<Schedule>& schedules_;
  std::vector<std::vector<Events>> events_;   // [ranks][launches]
  std::vector<int> step_begin_, step_end_;    // [ranks]
  std::vector<std::vector<int>> edges_;       // [events]
  std::vector<std::vector<uint64_t>> reach_;  // [events] bits of events
  std::vector<std::vector<Access>> memory_;   // [ranks]
  bool cycle_ = false;
};

}  // namespace braid::testing_schedule
