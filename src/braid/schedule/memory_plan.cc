#include "braid/schedule/memory_plan.h"

#include <algorithm>
#include <limits>

#include "braid/schedule/launch_order.h"
#include "braid/schedule/value_views.h"

namespace braid {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// A place in the arena and when it is in use.
struct Block {
  int64_t bytes = 0;
  int64_t offset = -1;
  bool always = false;  // inputs, which the host writes
  // Per stream: launches that have ended before any access begins, and positions + 1 of the last
  // accesses. a is done before b begins if a.last <= b.first on every stream.
  PerStream<int> first{kNever, kNever, kNever};
  PerStream<int> last{};
  // First and last access in recorded order.
  int begin = kNever;
  int end = -1;

  bool used() const { return always || first[0] != kNever; }
};

// When a placed block is in use, next to other such spans: each block is compared with all before.
struct Span {
  PerStream<int> first, last;
};

Span span_of(const Block& block) {
  if (!block.always) return {block.first, block.last};
  return {PerStream<int>{}, PerStream<int>{kNever, kNever, kNever}};
}

bool done_before(const Span& a, const Span& b) {
  for (size_t s = 0; s < a.last.size(); ++s) {
    if (a.last[s] > b.first[s]) return false;
  }
  return true;
}

bool may_meet(const Span& a, const Span& b) {
  return !done_before(a, b) && !done_before(b, a);
}

int64_t value_bytes(std::span<const Program> programs, ValueId id, const MicroBatch* only,
                    int ranks) {
  int64_t bytes = 0;
  for (const Program& program : programs) {
    Extents part = only == nullptr ? program.capacity : only->capacity;
    if (only != nullptr && part.shard == 0) part = sharded(part, ranks);
    bytes = std::max(bytes, bytes_of(program.type_of(id, part)));
  }
  return round_up(bytes, MemoryPlan::kAlignment);
}

class Planner {
 public:
  explicit Planner(const Plan& plan)
      : programs_(plan.programs),
        program_(plan.programs[0]),
        schedules_(plan.schedules),
        launches_(schedules_[0].launches),
        order_(launches_),
        M_(schedules_[0].micro_batches.size()),
        owners_(place_owners(program_, static_cast<int>(M_))) {}

  MemoryPlan run() {
    plan_.micro_batches = static_cast<int>(M_);
    plan_.value_offset.assign(program_.values.size() * M_, -1);
    plan_.merged.assign(program_.values.size(), false);
    plan_.workspace_offset.assign(launches_.size(), -1);
    find_merged();
    collect();
    place();
    for (size_t v = 0; v < program_.values.size(); ++v) {
      for (size_t mb = 0; mb < M_; ++mb) {
        plan_.value_offset[v * M_ + mb] =
            block_of(static_cast<ValueId>(v), static_cast<int>(mb)).offset;
      }
    }
    for (size_t i = 0; i < launches_.size(); ++i) plan_.workspace_offset[i] = scratch_[i].offset;
    return std::move(plan_);
  }

 private:
  template <class Fn>
  static void for_each_operand(const Op& op, Fn&& fn) {
    for (ValueId id : op.inputs) {
      if (id != kNoValue) fn(id);
    }
    for (ValueId id : op.outputs) fn(id);
  }
  bool in_arena(ValueId id) const {
    const ValueKind kind = program_.value(id).kind;
    return kind == ValueKind::computed || kind == ValueKind::input;
  }

  void find_merged() {
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& value = program_.values[v];
      plan_.merged[v] = M_ == 1 || value.kind == ValueKind::input;
    }
    for (ValueId id : program_.outputs) {
      plan_.merged[id] = M_ == 1 || program_.value(id).type.axis != BatchAxis::none;
    }
    for (const Launch& launch : launches_) {
      if (launch.num_micro_batches == 1) continue;
      for_each_operand(schedules_[0].op(program_, launch),
                       [&](ValueId id) { plan_.merged[id] = true; });
    }
  }

  Block& block_of(ValueId id, int micro_batch) {
    const size_t v = owners_[id];
    return values_[v * M_ + (plan_.merged[v] ? 0 : static_cast<size_t>(micro_batch))];
  }

  void use(Block& block, int launch) {
    const PerStream<int> before = order_.clock(launch);
    for (size_t s = 0; s < before.size(); ++s) block.first[s] = std::min(block.first[s], before[s]);
    auto& last = block.last[order_.stream(launch)];
    last = std::max(last, order_.position(launch) + 1);
    block.begin = std::min(block.begin, launch);
    block.end = std::max(block.end, launch);
  }

  void collect() {
    values_.resize(program_.values.size() * M_);
    scratch_.resize(launches_.size());
    for (size_t i = 0; i < launches_.size(); ++i) {
      const Launch& launch = launches_[i];
      schedules_[0].for_each_call(program_, launch, [&](const Op& op, int, int mb) {
        for_each_operand(op, [&](ValueId id) {
          if (in_arena(id)) use(block_of(id, mb), static_cast<int>(i));
        });
      });
      int64_t bytes = 0;
      for (const Schedule& schedule : schedules_) {
        bytes = std::max(bytes, schedule.launches[i].kernel.workspace_bytes);
      }
      if (bytes == 0) continue;
      scratch_[i].bytes = round_up(bytes, MemoryPlan::kAlignment);
      use(scratch_[i], static_cast<int>(i));
    }
    for (size_t v = 0; v < program_.values.size(); ++v) {
      if (program_.values[v].kind == ValueKind::input) values_[v * M_].always = true;
    }
    for (ValueId id : program_.outputs) {
      for (size_t mb = 0; mb < M_; ++mb) {
        Block& block = block_of(id, static_cast<int>(mb));
        block.last.fill(kNever);
        block.end = kNever;
      }
    }
    const int ranks = static_cast<int>(programs_.size());
    for (size_t v = 0; v < program_.values.size(); ++v) {
      for (size_t mb = 0; mb < M_; ++mb) {
        Block& block = block_of(static_cast<ValueId>(v), static_cast<int>(mb));
        if (!block.used() || (plan_.merged[v] && mb > 0)) continue;
        const MicroBatch* only = plan_.merged[v] ? nullptr : &schedules_[0].micro_batches[mb];
        const int64_t bytes = value_bytes(programs_, static_cast<ValueId>(v), only, ranks);
        block.bytes = std::max(block.bytes, bytes);
      }
    }
  }

  // Largest first wastes least: small blocks fill the gaps that large ones leave.
  void place() {
    std::vector<Block*> blocks;
    for (auto* list : {&values_, &scratch_}) {
      for (Block& block : *list) {
        if (block.used()) blocks.push_back(&block);
      }
    }
    std::ranges::stable_sort(blocks, std::greater<>(), &Block::bytes);
    std::vector<Span> spans;  // [blocks placed]
    spans.reserve(blocks.size());
    std::vector<const Block*> meeting;
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& block = *blocks[i];
      const Span span = span_of(block);
      meeting.clear();
      for (size_t j = 0; j < i; ++j) {
        if (may_meet(span, spans[j])) meeting.push_back(blocks[j]);
      }
      spans.push_back(span);
      std::ranges::sort(meeting, {}, &Block::offset);
      block.offset = 0;
      for (const Block* other : meeting) {
        if (block.offset + block.bytes > other->offset) {
          block.offset = std::max(block.offset, other->offset + other->bytes);
        }
      }
      plan_.arena_bytes = std::max(plan_.arena_bytes, block.offset + block.bytes);
    }
    count_live(blocks);
  }

  void count_live(const std::vector<Block*>& blocks) {
    const int launches = order_.size();
    std::vector<int64_t> change(launches + 1);  // of the bytes in use, at each launch
    for (const Block* block : blocks) {
      const int begin = block->always ? 0 : block->begin;
      change[begin] += block->bytes;
      if (!block->always && block->end < launches) change[block->end + 1] -= block->bytes;
    }
    int64_t live = 0;
    for (int launch = 0; launch < launches; ++launch) {
      live += change[launch];
      plan_.live_bytes = std::max(plan_.live_bytes, live);
    }
  }

  const std::vector<Program>& programs_;
  const Program& program_;
  const std::vector<Schedule>& schedules_;
  const std::vector<Launch>& launches_;
  const LaunchOrder order_;
  const size_t M_;
  const std::vector<ValueId> owners_;  // [values]
  MemoryPlan plan_;
  std::vector<Block> values_;   // [values, micro-batches]; merged ones use the first
  std::vector<Block> scratch_;  // [launches]
};

}  // namespace

MemoryPlan plan_memory(const Plan& plan) {
  BRAID_CHECK(!plan.programs.empty() && plan.programs.size() == plan.schedules.size());
  return Planner(plan).run();
}

}  // namespace braid
