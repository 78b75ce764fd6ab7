#include "braid/engine/batch_deal.h"

#include <algorithm>
#include <numeric>

#include "braid/ops/input_names.h"

namespace braid {

BatchDeal::BatchDeal(int groups, int tp, int64_t pages, int64_t page_size)
    : tp_(tp),
      page_size_(page_size),
      owner_(pages, -1),
      batches_(groups, Batch(page_size)),
      cuts_(groups) {}

int BatchDeal::fixed_group(const Batch& batch, size_t sequence) const {
  if (const int named = batch.group_of(sequence); named >= 0) {
    BRAID_CHECK(named < groups(), "group {} of {}", named, groups());
    return named;
  }
  const int64_t cached = batch.sequences()[sequence].cached;
  if (cached == 0) return -1;
  // Keys that nobody has written are supposed by a benchmark.
  const size_t last = (cached - 1) / page_size_;
  return owner_.at(batch.pages_of(sequence)[last]);
}

std::vector<int> BatchDeal::deal_groups(const Batch& batch) const {
  const std::span<const SequenceInfo> sequences = batch.sequences();
  std::vector<int> group_of;
  std::vector<int64_t> tokens(batches_.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    group_of.push_back(fixed_group(batch, s));
    if (group_of[s] >= 0) tokens[group_of[s]] += sequences[s].tokens;
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (group_of[s] >= 0) continue;
    const auto least = std::ranges::min_element(tokens);
    group_of[s] = static_cast<int>(least - tokens.begin());
    *least += sequences[s].tokens;
  }
  return group_of;
}

void BatchDeal::assign(const Batch& batch) {
  for (Batch& own : batches_) own.clear();
  rows_.clear();
  const std::vector<int> group_of = deal_groups(batch);
  size_t begin = 0;
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const SequenceInfo& sequence = batch.sequences()[s];
    const std::span<const int32_t> pages = batch.pages_of(s);
    const int group = group_of[s];
    Batch& own = batches_[group];
    const int64_t end = sequence.cached + sequence.tokens;
    for (int64_t page = 0; page * page_size_ < end; ++page) {
      int16_t& owner = owner_.at(pages[page]);
      const bool read = page * page_size_ < sequence.cached;
      BRAID_CHECK(!read || owner < 0 || owner == group,
                  "sequence {} of group {} reads a page of group {}", s, group, owner);
      owner = static_cast<int16_t>(group);
    }
    own.add(batch.tokens().subspan(begin, sequence.tokens), sequence.cached, pages,
            sequence.scored);
    for (int64_t i = sequence.scored; i > 0; --i) {
      rows_.emplace_back(group, static_cast<int32_t>(own.extents().token - i));
    }
    begin += sequence.tokens;
  }
  const auto most =
      std::ranges::max_element(batches_, {}, [](const Batch& b) { return b.extents().token; });
  busiest_ = most - batches_.begin();
}

void BatchDeal::cut(const Ranges& ranges, std::string_view strategy) {
  cuts_[busiest_].assign(batches_[busiest_], ranges, strategy);
  const int64_t whole = busiest().extents().token;
  for (size_t g = 0; g < batches_.size(); ++g) {
    if (g == busiest_) continue;
    const int64_t tokens = batches_[g].extents().token;
    Ranges own;
    for (const Range& range : ranges) {
      own.push_back({tokens * range.begin / whole, tokens * range.end / whole});
    }
    cuts_[g].assign_parts(batches_[g], own);
  }
  works_.clear();
  for (const BatchCut& cut : cuts_) {
    works_.insert(works_.end(), cut.works().begin(), cut.works().end());
  }
  const size_t n = ranges.size();
  for (size_t mb = 0; mb < n; ++mb) {
    int64_t rows = 0;
    for (size_t g = 0; g < cuts_.size(); ++g) rows += cuts_[g].work(mb).extents.row;
    for (size_t g = 0; g < cuts_.size(); ++g) works_[g * n + mb].extents.row = rows;
  }
  order_rows();
}

// Rows follow each other by micro-batch, then as in the batch.
void BatchDeal::order_rows() {
  const auto micro_batch = [&](int32_t row) {
    const auto [group, token] = rows_[row];
    const std::span<const Work> works = cuts_[group].works();
    int64_t end = 0;
    size_t mb = 0;
    while ((end += works[mb].extents.token) <= token) ++mb;
    return mb;
  };
  row_order_.resize(rows_.size());
  std::iota(row_order_.begin(), row_order_.end(), 0);
  std::ranges::stable_sort(row_order_, {}, micro_batch);
  if (std::ranges::is_sorted(row_order_)) row_order_.clear();
}

ContextKey BatchDeal::key(int strategy) const {
  ContextKey key = key_for(cuts_[busiest_], strategy, tp_);
  for (size_t mb = 0; mb < key.micro_batches.size(); ++mb) {
    MicroBatch& most = key.micro_batches[mb];
    for (const BatchCut& cut : cuts_) {
      const MicroBatch own = key_for(cut, strategy, tp_).micro_batches[mb];
      most.continues = most.continues || own.continues;
      for (const BatchAxis axis : kBatchAxes) {
        most.capacity[axis] = std::max(most.capacity[axis], own.capacity[axis]);
      }
    }
    most.capacity.row = row_capacity(works_[mb].extents.row);
  }
  key.every_row = false;
  return key;
}

void BatchDeal::write(const Executor& executor, int rank) const {
  const int group = rank / tp_;
  cuts_[group].write(executor);
  auto* rows = executor.input(inputs::kRows).as<int32_t>();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto& [owner, token] = rows_[row_order_.empty() ? i : static_cast<size_t>(row_order_[i])];
    rows[i] = owner == group ? token : -1;
  }
}

}  // namespace braid
