#include "braid/engine/local_step.h"

#include <algorithm>

#include "braid/base/math.h"
#include "braid/ops/input_names.h"
#include "braid/parallel/attention/keys_apart.h"

namespace braid {
namespace {

// Fills an i32 input: values, then `rest`.
void write_input(const Executor& executor, std::string_view name, std::span<const int32_t> values,
                 int32_t rest = 0) {
  const TensorView& view = executor.input(name);
  auto* out = std::ranges::copy(values, view.as<int32_t>()).out;
  std::fill(out, view.as<int32_t>() + view.shape.elems(), rest);
}

}  // namespace

std::vector<int> LocalStep::homes(const Batch& batch, const KvOwners& owners, HeldKeys& keys) {
  std::vector<int> homes;
  std::vector<int64_t> taken(owners.ranks());
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const SequenceInfo& sequence = batch.sequences()[s];
    const int home = batch.group_of(s);
    homes.push_back(-1);
    if (home < 0 || home >= owners.ranks()) continue;
    if (taken[home] + sequence.tokens > owners.left(home)) continue;
    if (keys.list(batch.pages_of(s), sequence.cached).held(home) < sequence.cached) continue;
    taken[home] += sequence.tokens;
    homes.back() = home;
  }
  return homes;
}

void LocalStep::Held::resize(size_t queries, size_t windows) {
  begin.assign(windows * queries, 0);
  end.assign(queries, 0);
  slots.assign(queries, -1);
}

LocalStep::LocalStep(const Batch& batch, const std::vector<int>& homes, KvOwners& owners,
                     HeldKeys& keys, const std::vector<int64_t>& windows)
    : batch_(batch), windows_(windows), work_(batch.work()), shares_(owners.ranks()) {
  work_.extents.sequence = 1;  // rows are one value for all sequences
  place_tokens(homes);
  const std::span<const SequenceInfo> sequences = batch.sequences();
  const auto place_keys = [&](bool own) {
    int64_t token = 0;
    for (size_t s = 0; s < sequences.size(); token += sequences[s++].tokens) {
      if ((homes[s] >= 0) != own) continue;
      for (int32_t slot : batch.slots().subspan(token, sequences[s].tokens)) {
        owners.write(slot, own ? homes[s] : owners.roomiest());
      }
    }
  };
  place_keys(true);
  place_keys(false);
  int64_t token = 0;
  for (size_t s = 0; s < sequences.size(); token += sequences[s++].tokens) {
    if (homes[s] >= 0) {
      add_own(s, token, homes[s], keys);
    } else {
      add_guests(s, token, owners, keys);
    }
  }
  int64_t most = 1;
  for (const Share& share : shares_) most = std::max<int64_t>(most, std::ssize(share.keys));
  key_.sequences = ceil_div(most, owners.room());
}

void LocalStep::place_tokens(const std::vector<int>& homes) {
  const auto P = static_cast<int>(shares_.size());
  std::vector<int64_t> own(P);
  int64_t guests = 0;
  for (size_t s = 0; s < homes.size(); ++s) {
    (homes[s] < 0 ? guests : own[homes[s]]) += batch_.sequences()[s].tokens;
  }
  key_ = key_for_local(P, ceil_div(guests, int64_t{P}), std::ranges::max(own), 1,
                       batch_.extents().row);
  const int64_t first_own = key_.q.max_rows() - key_.own;
  guests_ = P * first_own;
  for (int r = 0; r < P; ++r) {
    Share& share = shares_[r];
    share.held.resize(guests_ + key_.own, windows_.size());
    share.rows = own[r] > 0 ? first_own + own[r] : even_part(guests, P, r).size();
  }
  std::ranges::fill(own, 0);  // now the next own row
  int rank = 0;
  int64_t guest = 0;
  for (size_t s = 0; s < homes.size(); ++s) {
    for (int64_t i = 0; i < batch_.sequences()[s].tokens; ++i) {
      if (homes[s] >= 0) {
        const int64_t row = own[homes[s]]++;
        places_.push_back({homes[s], first_own + row, guests_ + row, false});
        continue;
      }
      while (guest >= even_part(guests, P, rank).end) ++rank;
      const int64_t row = guest++ - even_part(guests, P, rank).begin;
      places_.push_back({rank, row, rank * first_own + row, true});
    }
  }
}

void LocalStep::add_own(size_t sequence, int64_t first_token, int home, HeldKeys& keys) {
  const SequenceInfo& info = batch_.sequences()[sequence];
  const std::span<const int32_t> pages = batch_.pages_of(sequence);
  HeldKeys::Sequence& list = keys.list(pages, info.cached);
  for (int64_t i = 0; i < info.tokens; ++i) keys.extend(list, pages);
  Share& share = shares_[home];
  const auto first = std::ssize(share.keys);
  share.keys.insert(share.keys.end(), list.slots[home].begin(), list.slots[home].end());
  for (int64_t i = 0; i < info.tokens; ++i) {
    const int64_t row = places_[first_token + i].held, position = info.cached + i;
    share.held.end[row] = static_cast<int32_t>(first + position + 1);
    share.held.slots[row] = share.keys[first + position];
    for (size_t w = 0; w < windows_.size(); ++w) {
      const int32_t begin = list.begin(home, windows_[w], position, first);
      const bool key = windows_[w] != kQueryPosition;
      share.held.begin[w * share.held.end.size() + row] =
          key ? std::min(begin, share.held.end[row]) : begin;
    }
  }
}

void LocalStep::add_guests(size_t sequence, int64_t first_token, const KvOwners& owners,
                           HeldKeys& keys) {
  const SequenceInfo& info = batch_.sequences()[sequence];
  const std::span<const int32_t> pages = batch_.pages_of(sequence);
  HeldKeys::Sequence& list = keys.list(pages, info.cached);
  for (int64_t i = 0; i < info.tokens; ++i) {
    keys.extend(list, pages);
    const int64_t row = places_[first_token + i].held, position = info.cached + i;
    const int32_t slot = batch_.slots()[first_token + i];
    for (int r = 0; r < owners.ranks(); ++r) {
      Share& share = shares_[r];
      const auto first = std::ssize(share.keys);
      share.held.end[row] = static_cast<int32_t>(first + list.held(r));
      if (owners.owner(slot) == r) share.held.slots[row] = owners.held_at(slot);
      for (size_t w = 0; w < windows_.size(); ++w) {
        share.held.begin[w * share.held.end.size() + row] =
            list.begin(r, windows_[w], position, first);
      }
    }
  }
  for (int r = 0; r < owners.ranks(); ++r) {
    shares_[r].keys.insert(shares_[r].keys.end(), list.slots[r].begin(), list.slots[r].end());
  }
}

Range LocalStep::seen(int rank, size_t window, size_t token) const {
  const Place& place = places_.at(token);
  if (!place.guest && place.rank != rank) return {};
  const Held& held = shares_[rank].held;
  return {held.begin.at(window * held.end.size() + place.held), held.end.at(place.held)};
}

void LocalStep::write(const Executor& executor, int rank) const {
  const Share& share = shares_[rank];
  std::vector<int32_t> ids(share.rows), positions(share.rows);
  for (size_t t = 0; t < places_.size(); ++t) {
    if (places_[t].rank != rank) continue;
    ids[places_[t].row] = batch_.tokens()[t];
    positions[places_[t].row] = batch_.positions()[t];
  }
  write_input(executor, inputs::kTokenIds, ids);
  write_input(executor, inputs::kPositions, positions);
  std::ranges::copy(share.keys, executor.input(inputs::kHeldSlots).as<int32_t>());
  const inputs::Held& names = guests_ > 0 ? inputs::kGuests : inputs::kOwn;
  write_input(executor, names.rows, {});
  write_input(executor, names.begin, share.held.begin);
  write_input(executor, names.end, share.held.end);
  write_input(executor, names.slots, share.held.slots);
  std::vector<int32_t> scored;
  for (int32_t token : batch_.rows()) {
    const Place& place = places_[token];
    scored.push_back(place.rank == rank ? static_cast<int32_t>(place.row) : -1);
  }
  write_input(executor, inputs::kRows, scored, -1);
}

}  // namespace braid
