#include "braid/engine/batch.h"

#include <algorithm>

namespace braid {
namespace {

void write_input(const Executor& executor, std::string_view name,
                 const std::vector<int32_t>& values) {
  std::ranges::copy(values, executor.input(name).as<int32_t>());
}

}  // namespace

void Batch::clear() {
  work_ = {};
  for (auto* list : {&tokens_, &positions_, &slots_, &kv_len_, &pages_, &rows_}) list->clear();
  q_start_.assign(1, 0);
  page_start_.assign(1, 0);
}

void Batch::add(std::span<const int32_t> tokens, int64_t cached, std::span<const int32_t> pages,
                int64_t scored) {
  const auto n = static_cast<int64_t>(tokens.size());
  BRAID_CHECK(n > 0 && 0 <= scored && scored <= n, "{} of {} tokens scored", scored, n);
  BRAID_CHECK((cached + n) <= std::ssize(pages) * page_size_, "{} tokens in {} pages", cached + n,
              pages.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t position = cached + i;
    tokens_.push_back(tokens[static_cast<size_t>(i)]);
    positions_.push_back(static_cast<int32_t>(position));
    slots_.push_back(static_cast<int32_t>(
        pages[static_cast<size_t>(position / page_size_)] * page_size_ + position % page_size_));
    if (i >= n - scored) rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    work_.attended += position + 1;
  }
  q_start_.push_back(static_cast<int32_t>(tokens_.size()));
  kv_len_.push_back(static_cast<int32_t>(cached + n));
  pages_.insert(pages_.end(), pages.begin(), pages.end());
  page_start_.push_back(static_cast<int32_t>(pages_.size()));
  work_.kv_tokens += cached + n;
  work_.extents = {std::ssize(tokens_), std::ssize(kv_len_), std::ssize(rows_)};
}

void Batch::write(const Executor& executor) const {
  write_input(executor, "token_ids", tokens_);
  write_input(executor, "positions", positions_);
  write_input(executor, "slots", slots_);
  write_input(executor, "q_start", q_start_);
  write_input(executor, "kv_len", kv_len_);
  write_input(executor, "rows", rows_);
  const TensorView table = executor.input("page_table");
  for (size_t s = 0; s + 1 < page_start_.size(); ++s) {
    const auto pages =
        std::span(pages_).subspan(static_cast<size_t>(page_start_[s]),
                                  static_cast<size_t>(page_start_[s + 1] - page_start_[s]));
    BRAID_CHECK(std::ssize(pages) <= table.cols(), "{} pages in a table of {}", pages.size(),
                table.cols());
    std::ranges::copy(pages, table.row_as<int32_t>(static_cast<int64_t>(s)));
  }
}

}  // namespace braid
