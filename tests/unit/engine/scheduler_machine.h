#pragma once

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "braid/base/math.h"
#include "braid/engine/requests/scheduler.h"

namespace braid {

inline constexpr int64_t kPage = 4;

// A next token that depends on all tokens before it, as a model's does.
inline int32_t next_token(std::span<const int32_t> ids) {
  uint32_t h = 7;
  for (int32_t id : ids) h = h * 31 + static_cast<uint32_t>(id) + 1;
  return static_cast<int32_t>(h >> 8 & 0x3);
}

// Computes steps: keeps for each slot of the KV cache the tokens up to its position, and checks
// that whatever a row reads is there.
class Machine {
 public:
  explicit Machine(const SchedulerConfig& config)
      : config_(config),
        scheduler(config),
        slots_(static_cast<size_t>(config.pages * config.page_size)) {}

  RequestId submit(std::vector<int32_t> ids, int64_t max_tokens, std::string key = "",
                   std::string salt = "", bool score = false) {
    const RequestId id = ++last_;
    scheduler.submit({.id = id,
                      .ids = std::move(ids),
                      .max_tokens = max_tokens,
                      .key = std::move(key),
                      .salt = std::move(salt),
                      .score_prompt = score,
                      .arrival = now});
    return id;
  }

  Step step() {
    Step step = scheduler.next(now);
    std::vector<int32_t> tokens;
    std::set<int32_t> written;
    int64_t total = 0, decodes = 0;
    for (const StepRow& row : step.rows) {
      const Sequence& sequence = scheduler.sequence(row.id);
      const std::span<const int32_t> pages = scheduler.pages_of(row.id);
      const std::span<const int32_t> ids = sequence.ids;
      EXPECT_LT(row.begin, row.end);
      EXPECT_LE(row.end, std::ssize(ids));
      EXPECT_LE(ceil_div(row.end, kPage), std::ssize(pages));
      for (int64_t i = 0; i < row.end; ++i) {
        const int32_t slot =
            pages[static_cast<size_t>(i / kPage)] * kPage + static_cast<int32_t>(i % kPage);
        const uint64_t prefix = digest(sequence.salt, ids.first(static_cast<size_t>(i + 1)));
        if (i >= row.begin) {
          EXPECT_TRUE(written.insert(slot).second) << "two rows write slot " << slot;
          slots_[static_cast<size_t>(slot)] = prefix;
        }
        EXPECT_EQ(slots_[static_cast<size_t>(slot)], prefix)
            << "request " << row.id << " reads token " << i << " of another sequence";
      }
      EXPECT_TRUE(row.end == std::ssize(ids) || row.end % kPage == 0) << "a chunk ends in a page";
      EXPECT_EQ(row.sample, row.end == std::ssize(ids));
      if (row.sample) tokens.push_back(next_token(ids));
      total += row.end - row.begin;
      decodes += row.end - row.begin == 1 && row.begin + 1 == std::ssize(ids);
    }
    EXPECT_EQ(total, step.tokens);
    EXPECT_LE(total, std::max(config_.max_step_tokens, decodes + kPage));
    EXPECT_LE(std::ssize(step.rows), config_.max_running);
    if (config_.prompts_alone) {
      EXPECT_TRUE(step.rows.size() <= 1 || decodes == std::ssize(step.rows));
    }
    scheduler.step_done(step, tokens);
    scheduler.check();
    now += 0.001 * static_cast<double>(1 + step.tokens);
    ++steps;
    return step;
  }

  std::vector<int32_t> answer(RequestId id, size_t prompt) const {
    const std::vector<int32_t>& ids = scheduler.sequence(id).ids;
    return {ids.begin() + static_cast<ptrdiff_t>(prompt), ids.end()};
  }

  const SchedulerConfig config_;
  Scheduler scheduler;
  double now = 0;
  int64_t steps = 0;

 private:
  static uint64_t digest(const std::string& salt, std::span<const int32_t> ids) {
    uint64_t h = std::hash<std::string>()(salt);
    for (int32_t id : ids) h = (h ^ static_cast<uint32_t>(id + 1)) * 0x100000001b3u;
    return h;
  }

  std::vector<uint64_t> slots_;  // what the key of each slot stands for
  RequestId last_ = 0;
};

}  // namespace braid
