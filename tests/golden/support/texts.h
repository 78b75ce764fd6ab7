#pragma once

#include <gtest/gtest.h>

#include "golden/support/forward.h"

namespace braid::golden {

constexpr int64_t kSequencePages = 32;  // of kPageSize tokens

inline std::vector<int32_t> pages_of(size_t sequence) {
  std::vector<int32_t> pages;
  for (int64_t i = 0; i < kSequencePages; ++i) {
    pages.push_back(static_cast<int32_t>(static_cast<int64_t>(sequence) * kSequencePages + i));
  }
  return pages;
}

// Sequences in a runner's cache, ready to be continued together.
class Texts {
 public:
  Texts(Runner& runner, std::vector<std::vector<int32_t>> prompts)
      : runner_(runner), prompts_(std::move(prompts)) {
    for (size_t s = 0; s < prompts_.size(); ++s) pages_.push_back(pages_of(s));
  }

  // All but each prompt's last token, then these together.
  void prefill() {
    for (size_t s = 0; s < prompts_.size(); ++s) {
      const size_t n = prompts_[s].size() - 1;
      if (n == 0) continue;
      Batch batch(kPageSize);
      batch.add(std::span(prompts_[s]).first(n), 0, pages_[s], 0);
      runner_.step(batch);
    }
    Batch batch(kPageSize);
    for (size_t s = 0; s < prompts_.size(); ++s) {
      const auto n = std::ssize(prompts_[s]);
      batch.add({&prompts_[s].back(), 1}, n - 1, pages_[s], 1);
    }
    runner_.step(batch);
  }

  LoopRequest request(int64_t limit) {
    LoopRequest request{.limit = limit};
    for (size_t s = 0; s < prompts_.size(); ++s) {
      request.sequences.push_back(
          {.prompt = prompts_[s], .hold = [this, s](int64_t tokens) -> std::span<const int32_t> {
             return std::span(pages_[s]).first(static_cast<size_t>(ceil_div(tokens, kPageSize)));
           }});
    }
    return request;
  }

  // [sequences][limit]
  std::vector<std::vector<int32_t>> run(const LoopRequest& request) {
    std::vector<std::vector<int32_t>> ids(prompts_.size());
    const auto loop = runner_.loop(request);
    for (int64_t i = 0; i < request.limit; ++i) {
      const std::span<const SampledToken> tokens = loop->next();
      EXPECT_EQ(tokens.size(), ids.size());
      for (size_t s = 0; s < ids.size(); ++s) ids[s].push_back(tokens[s].id);
    }
    return ids;
  }

 private:
  Runner& runner_;
  const std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::vector<int32_t>> pages_;
};

}  // namespace braid::golden
