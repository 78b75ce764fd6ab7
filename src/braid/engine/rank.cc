#include "braid/engine/rank.h"

#include <algorithm>
#include <limits>

#include "braid/schedule/partition.h"

namespace braid {

TensorView cut(const TensorView& whole, const Placement& placement, int rank) {
  if (!placement.is_shard()) return whole;
  const Range& part = part_of(placement, rank);
  if (placement.dim == 0) return slice_rows(whole, part.begin, part.end);
  if (whole.shape.rank() == 3 && placement.dim == 1) {
    return slice_matrix_rows(whole, part.begin, part.end);
  }
  BRAID_CHECK(
      placement.dim + 1 == whole.shape.rank() && whole.shape.rank() - 2 == (whole.matrices ? 1 : 0),
      "cannot cut {} along {}", to_string(whole.shape), placement.dim);
  return slice_cols(whole, part.begin, part.end);
}

std::unique_ptr<Executor> Rank::bind(const RankProgram& lowered, Program fused, Schedule schedule,
                                     bool beside) {
  std::map<std::string_view, size_t> weights;  // by name
  for (size_t i = 0; i < lowered.program.values.size(); ++i) {
    const Value& value = lowered.program.values[i];
    if (value.kind == ValueKind::weight) weights[value.name] = i;
  }
  const auto weight_of = [&](const Value& value) {
    const size_t i = weights.at(value.name);
    const TensorView part = weight(value, lowered.placements[i]);
    const auto width = lowered.widths.find(static_cast<ValueId>(i));
    return width == lowered.widths.end() ? part : cut(part, width->second, lowered.rank);
  };
  // Ranks allocate alike if other ranks reach into the memory, also for steps in which this rank
  // has no op; a rank that steps alone must not.
  const bool together = fused.ops.empty() || std::ranges::any_of(fused.ops, communicates);
  std::shared_ptr<DeviceMemory>& arena = !together ? arena_alone_ : beside ? arena_beside_ : arena_;
  if (const int64_t bytes = schedule.memory.arena_bytes; !arena || arena->bytes() < bytes) {
    arena = together ? allocate_arena(bytes) : backend().allocate(bytes);
  }
  return std::make_unique<Executor>(
      std::move(fused), std::move(schedule), backend(),
      [&](const Value& value) {
        return value.kind == ValueKind::state ? state(value) : weight_of(value);
      },
      arena);
}

// States are allocated when the first Program names them, and shared by all.
TensorView Rank::state(const Value& value) {
  const int64_t bytes = bytes_of(value.type);
  auto at = states_.find(value.name);
  if (at == states_.end()) {
    State made{allocate_state(bytes), value.type};
    const int64_t usable = back(made, pages_);
    if (states_.empty()) pages_ = std::max(pages_, usable);
    at = states_.emplace(value.name, std::move(made)).first;
  }
  DeviceMemory& memory = *at->second.memory;
  BRAID_CHECK(memory.bytes() == std::max<int64_t>(bytes, 1), "state {} changed its size",
              value.name);
  return make_view(memory.data(), value.type.dtype, value.type.shape);
}

int64_t Rank::back(State& state, int64_t pages) {
  const int64_t all = state.type.shape[0];
  const int64_t page_bytes = bytes_of(state.type) / all;
  try {
    return back_state(*state.memory, page_bytes * std::min(pages, all)) / page_bytes;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the KV cache cannot grow to {} tokens: {}",
                                          pages * state.type.shape[1], error.what()));
  }
}

void Rank::back_pages(int64_t pages) {
  if (pages <= pages_) return;
  int64_t usable = states_.empty() ? pages : std::numeric_limits<int64_t>::max();
  for (auto& [name, state] : states_) usable = std::min(usable, back(state, pages));
  pages_ = std::max(pages, usable);
}

}  // namespace braid
