#include "braid/engine/held_keys.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/engine/sequence_step.h"
#include "braid/parallel/attention/keys_apart.h"

namespace braid {
namespace {

constexpr uint64_t kKeptSteps = 64;

}  // namespace

HeldKeys::HeldKeys(const KvOwners& owners, int64_t page_size, bool windowed)
    : owners_(owners), page_size_(page_size), windowed_(windowed) {}

int64_t HeldKeys::Sequence::before(int rank, int64_t position) const {
  return std::ranges::lower_bound(positions[rank], position) - positions[rank].begin();
}

int32_t HeldKeys::Sequence::begin(int rank, int64_t window, int64_t position, int64_t first) const {
  if (window == kQueryPosition) return static_cast<int32_t>(position);
  const int64_t key = first_in_window(window, position);
  return static_cast<int32_t>(first + (window == 0 ? 0 : before(rank, key)));
}

void HeldKeys::begin_step() {
  ++step_;
  std::erase_if(sequences_, [&](const Sequence& s) { return s.used + kKeptSteps < step_; });
}

// The longest list of the sequence's first keys.
HeldKeys::Sequence* HeldKeys::find(std::span<const int32_t> pages, int64_t keys) {
  Sequence* found = nullptr;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& s = *it;
    const size_t n = s.pages.size();
    const bool fits = n > 0 && s.length <= keys && n <= pages.size() &&
                      s.pages.back() == pages[n - 1] && std::ranges::equal(s.pages, pages.first(n));
    bool current = true;
    for (size_t i = 0; i < n && fits && current; ++i) {
      current = changes(s.pages[i]) == s.changes[i];
    }
    if (fits && current && (found == nullptr || s.length > found->length)) found = &s;
    it = current ? std::next(it) : sequences_.erase(it);
  }
  return found;
}

bool HeldKeys::complete(std::span<const int32_t> pages, int64_t keys) {
  const Sequence* known = find(pages, keys);
  for (int64_t i = known ? known->length : 0; i < keys; ++i, ++walked_) {
    if (owners_.owner(slot_of(pages, page_size_, i)) < 0) return false;
  }
  return true;
}

HeldKeys::Sequence& HeldKeys::list(std::span<const int32_t> pages, int64_t keys) {
  Sequence* s = find(pages, keys);
  // A list that this step has extended is another sequence's.
  if (s == nullptr || s->extended == step_) {
    s = &sequences_.emplace_back();
    s->slots.resize(owners_.ranks());
    s->positions.resize(owners_.ranks());
  }
  s->used = step_;
  while (s->length < keys) extend(*s, pages);
  return *s;
}

void HeldKeys::extend(Sequence& s, std::span<const int32_t> pages) {
  ++walked_;
  const int64_t page = s.length / page_size_;
  const int32_t slot = slot_of(pages, page_size_, s.length);
  if (std::ssize(s.pages) == page) {
    s.pages.push_back(pages[page]);
    s.changes.push_back(changes(pages[page]));
  }
  const int owner = owners_.owner(slot);
  BRAID_CHECK(owner >= 0, "key {} has no owner", s.length);
  s.slots[owner].push_back(owners_.held_at(slot));
  if (windowed_) s.positions[owner].push_back(s.length);
  ++s.length;
  s.extended = step_;
}

}  // namespace braid
