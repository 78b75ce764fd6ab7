#include "braid/engine/apart_step.h"

#include <algorithm>

#include "braid/engine/sequence_step.h"
#include "braid/ops/input_names.h"

namespace braid {
namespace {

void write_input(const Executor& executor, std::string_view name, std::span<const int32_t> values) {
  std::ranges::copy(values, executor.input(name).as<int32_t>());
}

}  // namespace

ApartStep::ApartStep(const Batch& batch, KvOwners& owners, HeldKeys& keys,
                     const std::vector<int64_t>& windows)
    : batch_(batch), work_(batch.work()), shares_(owners.ranks()) {
  const size_t T = batch.extents().token;
  work_.extents.sequence = 1;  // rows are one value for all sequences
  tokens_ = even_layout(static_cast<int64_t>(T), owners.ranks());
  for (int32_t slot : batch.slots()) owners.forget(slot);
  for (int32_t slot : batch.slots()) owners.write(slot, owners.roomiest());
  for (Share& share : shares_) {
    share.begin.resize(windows.size() * T);
    share.end.resize(T);
    share.new_slots.assign(T, -1);
  }
  for (size_t t = 0; t < T; ++t) {
    const int32_t slot = batch.slots()[t];
    shares_[owners.owner(slot)].new_slots[t] = owners.held_at(slot);
  }
  size_t token = 0;
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const SequenceInfo& info = batch.sequences()[s];
    const std::span<const int32_t> pages = batch.pages_of(s);
    HeldKeys::Sequence& sequence = keys.list(pages, info.cached);
    sequences_.push_back(&sequence);
    for (int64_t i = info.cached; i < info.cached + info.tokens; ++i, ++token) {
      keys.extend(sequence, pages);
      rows_.push_back(static_cast<int32_t>(s));
      for (int r = 0; r < owners.ranks(); ++r) {
        shares_[r].end[token] = static_cast<int32_t>(sequence.held(r));
        for (size_t w = 0; w < windows.size(); ++w) {
          shares_[r].begin[w * T + token] = sequence.begin(r, windows[w], i);
        }
      }
    }
  }
}

int64_t ApartStep::held(int rank, size_t sequence) const {
  return sequences_.at(sequence)->held(rank);
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
  write_input(executor, inputs::kGuests.rows, rows_);
  write_input(executor, inputs::kGuests.begin, share.begin);
  write_input(executor, inputs::kGuests.end, share.end);
  write_input(executor, inputs::kGuests.slots, share.new_slots);
  const TensorView& held = executor.input(inputs::kHeldSlots);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    std::ranges::copy(sequences_[s]->slots[rank], held.row_as<int32_t>(static_cast<int64_t>(s)));
  }
  const TensorView& scored = executor.input(inputs::kRows);
  std::fill_n(scored.as<int32_t>(), scored.shape.elems(), -1);
  auto* row = scored.as<int32_t>();
  for (int32_t token : batch_.rows()) {
    *row++ = own.begin <= token && token < own.end ? token - static_cast<int32_t>(own.begin) : -1;
  }
}

}  // namespace braid
