#include "braid/engine/batch.h"

#include <algorithm>

#include "braid/base/math.h"

namespace braid {

void Batch::clear() {
  work_ = {};
  sequences_.clear();
  groups_.clear();
  for (auto* list : {&tokens_, &positions_, &slots_, &pages_, &rows_}) list->clear();
  page_start_.assign(1, 0);
  pages_end_ = 0;
  exact_ = false;
}

void Batch::add(std::span<const int32_t> tokens, int64_t cached, std::span<const int32_t> pages,
                int64_t scored, int group) {
  const auto n = static_cast<int64_t>(tokens.size());
  BRAID_CHECK(n > 0 && 0 <= scored && scored <= n, "{} of {} tokens scored", scored, n);
  BRAID_CHECK((cached + n) <= std::ssize(pages) * page_size_, "{} tokens in {} pages", cached + n,
              pages.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t position = cached + i;
    tokens_.push_back(tokens[i]);
    positions_.push_back(static_cast<int32_t>(position));
    slots_.push_back(
        static_cast<int32_t>(pages[position / page_size_] * page_size_ + position % page_size_));
    if (i >= n - scored) rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  }
  sequences_.push_back({n, cached, scored});
  groups_.push_back(group);
  pages_.insert(pages_.end(), pages.begin(), pages.end());
  for (int32_t page : pages.first(ceil_div(cached + n, page_size_))) {
    pages_end_ = std::max<int64_t>(pages_end_, page + 1);
  }
  page_start_.push_back(static_cast<int32_t>(pages_.size()));
  work_.attended += attended_keys(cached, n);
  work_.kv_tokens += cached + n;
  work_.extents = {std::ssize(tokens_), std::ssize(sequences_), std::ssize(rows_)};
}

std::span<const int32_t> Batch::pages_of(size_t sequence) const {
  return std::span(pages_).subspan(page_start_[sequence],
                                   page_start_[sequence + 1] - page_start_[sequence]);
}

}  // namespace braid
