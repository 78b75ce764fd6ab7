#include "braid/engine/batch_cut.h"

#include <algorithm>

#include "braid/ops/input_names.h"

namespace braid {
namespace {

void write_input(const Executor& executor, std::string_view name, std::span<const int32_t> values) {
  std::ranges::copy(values, executor.input(name).as<int32_t>());
}

void check(const Ranges& ranges, int64_t tokens, std::string_view strategy) {
  int64_t end = 0;
  bool good = !ranges.empty();
  for (const Range& range : ranges) {
    good = good && range.begin == end && !range.empty();
    end = range.end;
  }
  if (good && end == tokens) return;
  std::string text;
  for (const Range& range : ranges) text += fmt::format(" {}..{}", range.begin, range.end);
  fail(ErrorCode::kInvalidArgument,
       "schedule '{}': it splits {} tokens as{}: wanted are ranges that follow each other, are not "
       "empty and cover all",
       strategy, tokens, text.empty() ? " nothing" : text);
}

}  // namespace

void BatchCut::assign(const Batch& batch, const Ranges& ranges, std::string_view strategy) {
  check(ranges, std::ssize(batch.tokens()), strategy);
  assign_parts(batch, ranges);
}

void BatchCut::assign_parts(const Batch& batch, const Ranges& ranges) {
  batch_ = &batch;
  works_.clear();
  continues_.clear();
  q_start_.assign(1, 0);
  kv_len_.clear();
  sequence_.clear();
  const std::span<const SequenceInfo> sequences = batch.sequences();
  size_t s = 0;
  int64_t s_begin = 0;  // first token of sequence s
  auto row = batch.rows().begin();
  for (const Range& range : ranges) {
    Work work;
    continues_.push_back(range.begin > s_begin);
    for (int64_t token = range.begin; token < range.end;) {
      const SequenceInfo& sequence = sequences[s];
      const int64_t end = std::min(range.end, s_begin + sequence.tokens);
      const int64_t cached = sequence.cached + (token - s_begin);
      q_start_.push_back(static_cast<int32_t>(end));
      kv_len_.push_back(static_cast<int32_t>(sequence.cached + (end - s_begin)));
      sequence_.push_back(s);
      ++work.extents.sequence;
      work.attended += attended_keys(cached, end - token);
      work.kv_tokens += cached + (end - token);
      if (end == s_begin + sequence.tokens) {
        s_begin = end;
        ++s;
      }
      token = end;
    }
    const auto row_end = std::lower_bound(row, batch.rows().end(), range.end);
    work.extents.token = range.size();
    work.extents.row = row_end - row;
    row = row_end;
    works_.push_back(work);
  }
}

void BatchCut::write(const Executor& executor) const {
  write_input(executor, inputs::kTokenIds, batch_->tokens());
  write_input(executor, inputs::kPositions, batch_->positions());
  write_input(executor, inputs::kSlots, batch_->slots());
  write_input(executor, inputs::kQStart, q_start_);
  write_input(executor, inputs::kKvLen, kv_len_);
  write_input(executor, inputs::kRows, batch_->rows());
  const TensorView table = executor.input(inputs::kPageTable);
  for (size_t s = 0; s < sequence_.size(); ++s) {
    const std::span<const int32_t> pages = batch_->pages_of(sequence_[s]);
    BRAID_CHECK(std::ssize(pages) <= table.cols(), "{} pages in a table of {}", pages.size(),
                table.cols());
    std::ranges::copy(pages, table.row_as<int32_t>(static_cast<int64_t>(s)));
  }
}

}  // namespace braid
