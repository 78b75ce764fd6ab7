#include "braid/schedule/memory_plan.h"

#include <algorithm>

#include "braid/base/math.h"

namespace braid {
namespace {

// Bytes that are live from launch `first` to launch `last`, both included.
struct Block {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int64_t* offset = nullptr;
};

std::vector<Block> blocks_of(const Program& program, std::span<const Launch> launches,
                             MemoryPlan& plan) {
  const int end = static_cast<int>(launches.size()) - 1;
  std::vector<Block> values(program.values.size());
  const auto use = [&](ValueId id, int launch) {
    Block& block = values[static_cast<size_t>(id)];
    if (block.offset == nullptr) block.first = launch;
    block.offset = &plan.value_offset[static_cast<size_t>(id)];
    block.last = std::max(block.last, launch);
  };
  for (size_t id = 0; id < values.size(); ++id) {
    const Value& value = program.values[id];
    if (value.kind != ValueKind::input) continue;
    use(static_cast<ValueId>(id), 0);
    use(static_cast<ValueId>(id), end);
  }
  for (int i = 0; i <= end; ++i) {
    const Op& op = program.ops[static_cast<size_t>(launches[static_cast<size_t>(i)].op)];
    for (ValueId id : op.outputs) use(id, i);
    for (ValueId id : op.inputs) {
      if (id != kNoValue && program.value(id).kind == ValueKind::computed) use(id, i);
    }
  }
  for (ValueId id : program.outputs) use(id, end);

  std::vector<Block> blocks;
  for (size_t id = 0; id < values.size(); ++id) {
    if (values[id].offset == nullptr) continue;
    const ValueType& type = program.values[id].type;
    values[id].bytes =
        round_up(type.shape.rows() * bytes_of(type.dtype, type.shape[-1]), MemoryPlan::kAlignment);
    blocks.push_back(values[id]);
  }
  for (int i = 0; i <= end; ++i) {
    const int64_t bytes = launches[static_cast<size_t>(i)].kernel.workspace_bytes;
    if (bytes == 0) continue;
    blocks.push_back({round_up(bytes, MemoryPlan::kAlignment), i, i,
                      &plan.workspace_offset[static_cast<size_t>(i)]});
  }
  return blocks;
}

bool overlap_in_time(const Block& a, const Block& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The lowest offset at which `block` clears every placed block that is live with it.
int64_t lowest_gap(const Block& block, const std::vector<Block>& placed) {
  std::vector<Range> taken;
  for (const Block& other : placed) {
    if (overlap_in_time(block, other)) {
      taken.push_back({*other.offset, *other.offset + other.bytes});
    }
  }
  std::ranges::sort(taken, {}, &Range::begin);
  int64_t offset = 0;
  for (const Range& range : taken) {
    if (offset + block.bytes <= range.begin) break;
    offset = std::max(offset, range.end);
  }
  return offset;
}

int64_t most_live(const std::vector<Block>& blocks, size_t launches) {
  std::vector<int64_t> change(launches + 1);
  for (const Block& block : blocks) {
    change[static_cast<size_t>(block.first)] += block.bytes;
    change[static_cast<size_t>(block.last) + 1] -= block.bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t delta : change) most = std::max(most, live += delta);
  return most;
}

}  // namespace

MemoryPlan plan_memory(const Program& program, std::span<const Launch> launches) {
  BRAID_CHECK(!launches.empty());
  MemoryPlan plan;
  plan.value_offset.assign(program.values.size(), -1);
  plan.workspace_offset.assign(launches.size(), -1);
  std::vector<Block> blocks = blocks_of(program, launches, plan);
  plan.live_bytes = most_live(blocks, launches.size());
  // Largest first wastes least: small blocks fill the gaps that large ones leave.
  std::ranges::stable_sort(blocks, std::greater<>(), &Block::bytes);
  std::vector<Block> placed;
  for (const Block& block : blocks) {
    *block.offset = lowest_gap(block, placed);
    plan.arena_bytes = std::max(plan.arena_bytes, *block.offset + block.bytes);
    placed.push_back(block);
  }
  return plan;
}

}  // namespace braid
