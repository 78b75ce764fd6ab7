#include "braid/engine/kv_owners.h"

#include <algorithm>
#include <functional>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

constexpr int64_t kBlock = 64;  // slots that count their changes together

}  // namespace

void append(SequenceLayout& layout, int rank, int64_t position) {
  auto& runs = layout.ranks.at(rank);
  if (runs.empty() || runs.back().position + runs.back().rows != position) {
    runs.push_back({position, 0});
  }
  ++runs.back().rows;
}

KvOwners::KvOwners(int ranks, int64_t slots, int64_t room)
    : ranks_(ranks), room_(room), owner_(slots, room > 0 ? -1 : 0), first_(slots) {
  if (!apart()) return;
  BRAID_CHECK(ranks * room >= slots, "{} ranks hold {} keys each, there are {} slots", ranks, room,
              slots);
  held_.resize(slots);
  own_.resize(ranks);
  changes_.resize(ceil_div(slots, kBlock));
}

int64_t KvOwners::left(int rank) const {
  const Own& own = own_.at(rank);
  return room_ - own.next + std::ssize(own.free);
}

int64_t KvOwners::used() const {
  int64_t most = 0;
  for (const Own& own : own_) most = std::max(most, own.next);
  return most;
}

int KvOwners::roomiest() const {
  int most = 0;
  for (int r = 1; r < ranks_; ++r) {
    if (left(r) > left(most)) most = r;
  }
  return most;
}

void KvOwners::forget(int32_t slot) {
  int16_t& owner = owner_.at(slot);
  if (!apart() || owner < 0) return;
  std::vector<int32_t>& free = own_[owner].free;
  free.push_back(held_[slot]);
  std::ranges::push_heap(free, std::greater<>());
  owner = -1;
  ++changes_[slot / kBlock];
}

void KvOwners::forget_behind(int32_t slot, int64_t page_size) {
  const bool first = slot % page_size == 0;  // a page's last sequence may have left gaps
  if (!first && owner(slot) < 0) return;
  const auto end = static_cast<int32_t>((slot / page_size + 1) * page_size);
  for (int32_t i = slot; i < end; ++i) forget(i);
}

uint32_t KvOwners::changes(int64_t begin, int64_t end) const {
  uint32_t sum = 0;
  for (int64_t i = begin / kBlock; i * kBlock < end; ++i) sum += changes_[i];
  return sum;
}

void KvOwners::write(int32_t slot, int rank) {
  forget(slot);
  owner_.at(slot) = static_cast<int16_t>(rank);
  first_[slot] = rank == 0;
  if (!apart()) return;
  BRAID_CHECK(left(rank) > 0, "rank {} holds {} keys: it has no room", rank, room_);
  Own& own = own_[rank];
  int32_t& held = held_[slot];
  if (own.free.empty()) {
    held = static_cast<int32_t>(own.next++);
    return;
  }
  std::ranges::pop_heap(own.free, std::greater<>());
  held = own.free.back();
  own.free.pop_back();
}

void KvOwners::adopt(std::span<const int32_t> slots, int rank) {
  if (!apart()) return;
  std::vector<int32_t> missing;
  for (int32_t slot : slots) {
    if (owner(slot) < 0) missing.push_back(slot);
  }
  const auto n = std::ssize(missing);
  for (int64_t i = 0; i < n; ++i) {
    const int wanted = rank >= 0 ? rank : static_cast<int>(i * ranks_ / n);
    write(missing[i], left(wanted) > 0 ? wanted : roomiest());
  }
}

SequenceLayout KvOwners::layout(std::span<const int32_t> slots) const {
  SequenceLayout layout;
  layout.ranks.resize(ranks_);
  for (size_t i = 0; i < slots.size(); ++i) {
    append(layout, owner_.at(slots[i]), static_cast<int64_t>(i));
  }
  return layout;
}

SequenceLayout KvOwners::missing_on_first(std::span<const int32_t> slots) const {
  SequenceLayout layout;
  layout.ranks.resize(ranks_);
  for (size_t i = 0; i < slots.size(); ++i) {
    const size_t slot = slots[i];
    if (!first_.at(slot)) append(layout, owner_[slot], static_cast<int64_t>(i));
  }
  return layout;
}

}  // namespace braid
