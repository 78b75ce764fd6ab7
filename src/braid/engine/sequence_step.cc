#include "braid/engine/sequence_step.h"

#include <algorithm>

#include "braid/ops/input_names.h"

namespace braid {
namespace {

// Fills an i32 input: values, then -1.
template <class Values>
void fill(const Executor& executor, std::string_view name, Values&& values) {
  const TensorView& view = executor.input(name);
  std::span<int32_t> out(view.as<int32_t>(), view.shape.elems());
  std::ranges::fill(out, -1);
  auto at = out.begin();
  values([&](int32_t value) { *at++ = value; });
}

// Calls fn for the positions of a rank's rows, in order.
template <class Fn>
void for_each_position(const SequenceLayout& layout, int rank, Fn&& fn) {
  for (const SequenceRun& run : layout.ranks[rank]) {
    for (int64_t i = 0; i < run.rows; ++i) fn(run.position + i);
  }
}

}  // namespace

std::vector<int32_t> slots_of(std::span<const int32_t> pages, int64_t page_size, int64_t tokens) {
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < tokens; ++i) slots.push_back(slot_of(pages, page_size, i));
  return slots;
}

SequenceStep::SequenceStep(const Batch& batch, int64_t page_size, KvOwners& owners, int ranks)
    : batch_(batch), cached_(batch.sequences()[0].cached) {
  BRAID_CHECK(batch.sequences().size() == 1, "{} sequences", batch.sequences().size());
  const int64_t n = batch.sequences()[0].tokens;
  slots_ = slots_of(batch.pages_of(0), page_size, cached_ + n);
  q_ = even_zigzag_layout(n, ranks, cached_);
  kv_ = owners.layout(std::span(slots_).first(cached_));
  for (int r = ranks; r < owners.ranks(); ++r) {
    BRAID_CHECK(kv_.rows(r) == 0, "rank {} of {} holds {} keys", r, ranks, kv_.rows(r));
  }
  kv_.ranks.resize(ranks);
  for (int32_t slot : batch.slots()) owners.forget(slot);
  std::vector<int32_t> row_of(n);
  int32_t row = 0;
  for (int r = 0; r < ranks; ++r) {
    for_each_position(q_, r, [&](int64_t position) {
      append(kv_, r, position);
      owners.write(slots_[position], r);
      row_of[position - cached_] = row++;
    });
  }
  for (int32_t& slot : slots_) slot = owners.held_at(slot);
  for (int32_t scored : batch.rows()) rows_.push_back(row_of[scored]);
}

void SequenceStep::write(const Executor& executor, int rank) const {
  const auto own = [&](std::string_view name, std::span<const int32_t> of_tokens) {
    fill(executor, name, [&](auto&& put) {
      for_each_position(q_, rank, [&](int64_t position) { put(of_tokens[position - cached_]); });
    });
  };
  own(inputs::kTokenIds, batch_.tokens());
  own(inputs::kPositions, batch_.positions());
  own(inputs::kSlots, std::span(slots_).subspan(cached_));
  const int ranks = static_cast<int>(q_.ranks.size());
  const Range rows = even_part(q_.length(), ranks, rank);
  fill(executor, inputs::kRows, [&](auto&& put) {
    for (int32_t row : rows_) {
      const bool own = rows.begin <= row && row < rows.end;
      put(own ? row - static_cast<int32_t>(rows.begin) : -1);
    }
  });
  fill(executor, inputs::kKvSlots, [&](auto&& put) {
    for_each_position(kv_, rank, [&](int64_t position) { put(slots_[position]); });
  });
}

void KvGather::write(const Executor& executor, int rank) const {
  const auto slots = [&](int of, auto&& put) {
    for_each_position(kv_, of, [&](int64_t position) { put(slots_[position]); });
  };
  fill(executor, inputs::kKvSlots, [&](auto&& put) { slots(rank, put); });
  fill(executor, inputs::kToSlots, [&](auto&& put) {
    for (int of = 1; rank == 0 && of < static_cast<int>(kv_.ranks.size()); ++of) slots(of, put);
  });
}

void KvGather::record(KvOwners& owners) const {
  for (int r = 0; r < static_cast<int>(kv_.ranks.size()); ++r) {
    for_each_position(kv_, r, [&](int64_t position) { owners.copy_to_first(slots_[position]); });
  }
}

}  // namespace braid
