#include "braid/engine/apart_step.h"

#include <algorithm>

#include "braid/engine/sequence_step.h"
#include "braid/ops/input_names.h"

namespace braid {
namespace {

void write_input(const Executor& executor, std::string_view name, std::span<const int32_t> values) {
  std::ranges::copy(values, executor.input(name).as<int32_t>());
}

// How many of ascending positions lie before `position`.
int32_t before(const std::vector<int64_t>& positions, int64_t position) {
  return static_cast<int32_t>(std::ranges::lower_bound(positions, position) - positions.begin());
}

}  // namespace

ApartStep::ApartStep(const Batch& batch, int64_t page_size, KvOwners& owners,
                     const std::vector<int64_t>& windows)
    : batch_(batch), work_(batch.work()), shares_(owners.ranks()) {
  const size_t T = batch.extents().token;
  const std::span<const SequenceInfo> sequences = batch.sequences();
  work_.extents.sequence = 1;  // rows are one value for all sequences
  tokens_ = even_layout(static_cast<int64_t>(T), owners.ranks());
  for (int32_t slot : batch.slots()) owners.forget(slot);
  for (int32_t slot : batch.slots()) owners.write(slot, owners.roomiest());
  for (Share& share : shares_) {
    share.slots.resize(sequences.size());
    share.begin.resize(windows.size() * T);
    share.end.resize(T);
    share.new_slots.assign(T, -1);
  }
  for (size_t t = 0; t < T; ++t) {
    const int32_t slot = batch.slots()[t];
    shares_[owners.owner(slot)].new_slots[t] = owners.held_at(slot);
  }
  const bool windowed = std::ranges::any_of(windows, [](int64_t w) { return w > 0; });
  size_t token = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceInfo& sequence = sequences[s];
    const std::span<const int32_t> pages = batch.pages_of(s);
    const int64_t length = sequence.cached + sequence.tokens;
    std::vector<std::vector<int64_t>> positions(shares_.size());  // wanted by windows alone
    for (Share& share : shares_) share.slots[s].reserve(length);
    for (int64_t i = 0; i < length; ++i) {
      const int32_t slot = slot_of(pages, page_size, i);
      const size_t r = owners.owner(slot);
      shares_[r].slots[s].push_back(owners.held_at(slot));
      if (windowed) positions[r].push_back(i);
      if (i < sequence.cached) continue;
      rows_.push_back(static_cast<int32_t>(s));
      for (size_t p = 0; p < shares_.size(); ++p) {
        shares_[p].end[token] = static_cast<int32_t>(shares_[p].slots[s].size());
        for (size_t w = 0; w < windows.size(); ++w) {
          if (windows[w] == 0) continue;
          shares_[p].begin[w * T + token] = before(positions[p], i - windows[w] + 1);
        }
      }
      ++token;
    }
  }
}

int64_t ApartStep::held(int rank, size_t sequence) const {
  return std::ssize(shares_.at(rank).slots.at(sequence));
}

Range ApartStep::seen(int rank, size_t window, size_t token) const {
  const Share& share = shares_.at(rank);
  return {share.begin.at(window * rows_.size() + token), share.end.at(token)};
}

void ApartStep::write(const Executor& executor, int rank) const {
  const Share& share = shares_[rank];
  const Range own = even_part(batch_.extents().token, std::ssize(shares_), rank);
  const auto own_of = [&](std::span<const int32_t> values) {
    return values.subspan(own.begin, own.size());
  };
  write_input(executor, inputs::kTokenIds, own_of(batch_.tokens()));
  write_input(executor, inputs::kPositions, own_of(batch_.positions()));
  write_input(executor, inputs::kHeldRows, rows_);
  write_input(executor, inputs::kHeldBegin, share.begin);
  write_input(executor, inputs::kHeldEnd, share.end);
  write_input(executor, inputs::kNewSlots, share.new_slots);
  const TensorView& held = executor.input(inputs::kHeldSlots);
  for (size_t s = 0; s < share.slots.size(); ++s) {
    std::ranges::copy(share.slots[s], held.row_as<int32_t>(static_cast<int64_t>(s)));
  }
  const TensorView& scored = executor.input(inputs::kRows);
  std::fill_n(scored.as<int32_t>(), scored.shape.elems(), -1);
  auto* row = scored.as<int32_t>();
  for (int32_t token : batch_.rows()) {
    *row++ = own.begin <= token && token < own.end ? token - static_cast<int32_t>(own.begin) : -1;
  }
}

}  // namespace braid
