#include "braid/engine/kv_owners.h"

namespace braid {

void append(SequenceLayout& layout, int rank, int64_t position) {
  auto& runs = layout.ranks.at(static_cast<size_t>(rank));
  if (runs.empty() || runs.back().position + runs.back().rows != position) {
    runs.push_back({position, 0});
  }
  ++runs.back().rows;
}

SequenceLayout KvOwners::layout(std::span<const int32_t> slots) const {
  SequenceLayout layout;
  layout.ranks.resize(static_cast<size_t>(ranks_));
  for (size_t i = 0; i < slots.size(); ++i) {
    append(layout, owner_.at(static_cast<size_t>(slots[i])), static_cast<int64_t>(i));
  }
  return layout;
}

SequenceLayout KvOwners::missing_on_first(std::span<const int32_t> slots) const {
  SequenceLayout layout;
  layout.ranks.resize(static_cast<size_t>(ranks_));
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto slot = static_cast<size_t>(slots[i]);
    if (!first_.at(slot)) append(layout, owner_[slot], static_cast<int64_t>(i));
  }
  return layout;
}

}  // namespace braid
