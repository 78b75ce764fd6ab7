#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/requests/scheduler.h"

// A simulated machine that computes a scheduler's steps.
namespace braid::scheduler_test {

constexpr int64_t kPage = 4;

inline SchedulerConfig small() {
  return {.pages = 64,
          .page_size = kPage,
          .max_context = 128,
          .max_running = 8,
          .max_step_tokens = 32,
          .max_waiting = 1000};
}

// A next token that depends on all tokens before it, as a model's does.
inline int32_t next_token(std::span<const int32_t> ids) {
  uint32_t h = 7;
  for (int32_t id : ids) h = h * 31 + static_cast<uint32_t>(id) + 1;
  return static_cast<int32_t>(h >> 8 & 0x3);
}

// Computes steps, of which up to `depth` are under way: keeps for each slot of the KV cache the
// tokens up to its position, and checks that whatever a row reads is there. A step is computed as
// it is put in, so that the tokens which the scheduler does not know yet are known here.
class Machine {
 public:
  explicit Machine(const SchedulerConfig& config, size_t depth = 1)
      : config_(config),
        scheduler(config),
        depth_(depth),
        slots_(static_cast<size_t>(config.pages * config.page_size)) {}

  RequestId submit(std::vector<int32_t> ids, int64_t max_tokens, std::string key = "",
                   std::string salt = "", bool score = false, bool exact = false) {
    const RequestId id = ++last_;
    scheduler.submit({.id = id,
                      .ids = std::move(ids),
                      .max_tokens = max_tokens,
                      .key = std::move(key),
                      .salt = std::move(salt),
                      .exact = exact,
                      .score_prompt = score,
                      .arrival = now});
    return id;
  }

  Step step() {
    Step step = scheduler.next(now);
    std::vector<int32_t> tokens;
    std::set<int32_t> written;
    int64_t total = 0, decodes = 0, alone = 0;
    for (const StepRow& row : step.rows) {
      const Sequence& sequence = scheduler.sequence(row.id);
      const std::span<const int32_t> pages = scheduler.pages_of(row.id);
      const std::vector<int32_t> ids = known(row.id, sequence.ids);
      if (row.end - row.begin > 1) {
        EXPECT_EQ(ids, sequence.ids) << "a prompt's chunk has tokens that are not known";
      }
      EXPECT_LT(row.begin, row.end);
      EXPECT_LE(row.end, std::ssize(ids));
      EXPECT_LE(ceil_div(row.end, kPage), std::ssize(pages));
      for (int64_t i = 0; i < row.end; ++i) {
        const int32_t slot =
            pages[static_cast<size_t>(i / kPage)] * kPage + static_cast<int32_t>(i % kPage);
        // Groups of ranks have keys of their own, and so have approximate sequences.
        const uint64_t prefix = digest(
            fmt::format("{} {} {}", sequence.salt, scheduler.group_of(row.id), kind_of(row.id)),
            std::span(ids).first(static_cast<size_t>(i + 1)));
        if (i >= row.begin) {
          EXPECT_TRUE(written.insert(slot).second) << "two rows write slot " << slot;
          slots_[static_cast<size_t>(slot)] = prefix;
        }
        EXPECT_EQ(slots_[static_cast<size_t>(slot)], prefix)
            << "request " << row.id << " reads token " << i << " of another sequence";
      }
      EXPECT_TRUE(row.end == std::ssize(ids) || row.end % kPage == 0) << "a chunk ends in a page";
      EXPECT_EQ(row.sample, row.end == std::ssize(ids));
      if (row.sample) {
        tokens.push_back(next_token(ids));
        pending_[row.id].push_back(tokens.back());
      }
      total += row.end - row.begin;
      const bool decode = row.end - row.begin == 1 && row.begin + 1 == std::ssize(ids);
      decodes += decode;
      alone +=
          !decode &&
          ((config_.prompts_alone && (config_.own_prompt == 0 || scheduler.group_of(row.id) < 0)) ||
           scheduler.approximates(row.id));
    }
    EXPECT_EQ(total, step.tokens);
    EXPECT_LE(total, std::max(config_.max_step_tokens, decodes + kPage));
    EXPECT_LE(std::ssize(step.rows), config_.max_running);
    EXPECT_TRUE(step.rows.size() <= 1 || alone == 0) << alone << " prompts";
    if (config_.shared_tokens > 0 && alone == 0) {
      EXPECT_LE(total, std::max(config_.shared_tokens, decodes + kPage));
    }
    if (!step.empty()) {
      scheduler.step_put(step);
      scheduler.check();
      under_way_.emplace_back(step, tokens);
    }
    while (!under_way_.empty() && (under_way_.size() >= depth_ || step.empty())) done();
    now += 0.001 * static_cast<double>(1 + step.tokens);
    ++steps;
    return step;
  }

  // Tokens that the scheduler knows.
  std::vector<int32_t> answer(RequestId id, size_t prompt) const {
    const std::vector<int32_t>& ids = scheduler.sequence(id).ids;
    return {ids.begin() + static_cast<ptrdiff_t>(prompt), std::ranges::find(ids, kPendingToken)};
  }

  const SchedulerConfig config_;
  Scheduler scheduler;
  double now = 0;
  int64_t steps = 0;
  int64_t dropped = 0;  // tokens of requests that had ended

 private:
  std::string kind_of(RequestId id) const {
    if (!scheduler.approximates(id)) return "";
    return config_.approximate_shared ? "approximate" : fmt::format("of {}", id);
  }
  // The oldest step ends.
  void done() {
    const auto [step, tokens] = under_way_.front();
    under_way_.pop_front();
    scheduler.step_done(step, tokens);
    scheduler.check();
    for (const StepRow& row : step.rows) {
      if (!row.sample) continue;
      auto& pending = pending_[row.id];
      pending.erase(pending.begin());
      dropped += !scheduler.contains(row.id);
    }
  }
  std::vector<int32_t> known(RequestId id, std::vector<int32_t> ids) {
    auto pending = pending_[id].begin();
    for (int32_t& token : ids) {
      if (token == kPendingToken) token = *pending++;
    }
    return ids;
  }

  const size_t depth_;
  std::deque<std::pair<Step, std::vector<int32_t>>> under_way_;
  std::map<RequestId, std::vector<int32_t>> pending_;
  static uint64_t digest(const std::string& salt, std::span<const int32_t> ids) {
    uint64_t h = std::hash<std::string>()(salt);
    for (int32_t id : ids) h = (h ^ static_cast<uint32_t>(id + 1)) * 0x100000001b3u;
    return h;
  }

  std::vector<uint64_t> slots_;  // what the key of each slot stands for
  RequestId last_ = 0;
};

inline std::vector<int32_t> alone(std::vector<int32_t> ids, int64_t max_tokens) {
  const size_t prompt = ids.size();
  for (int64_t i = 0; i < max_tokens; ++i) ids.push_back(next_token(ids));
  return {ids.begin() + static_cast<ptrdiff_t>(prompt), ids.end()};
}

struct Expected {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
};

// Random arrivals, lengths, keys, salts and cancels until all are done; returns the preemptions.
inline int64_t random_run(uint32_t seed, SchedulerConfig config, int requests, size_t depth = 1) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  Machine machine(config, depth);
  std::map<RequestId, Expected> open;
  int submitted = 0;
  const int64_t room = std::min(config.max_context, config.pages * config.page_size);
  while (submitted < requests || !open.empty()) {
    while (submitted < requests && pick(0, 2) == 0) {
      Expected expected;
      const auto length = pick(0, 9) == 0 ? pick(1, room - 1) : pick(1, room / 4);
      // Few different tokens: many prompts begin alike.
      const auto same = pick(0, length);
      for (int64_t i = 0; i < length; ++i) {
        expected.prompt.push_back(static_cast<int32_t>(i < same ? i % 3 : pick(0, 2)));
      }
      expected.max_tokens = std::min(pick(1, 24), room - length);
      const RequestId id = machine.submit(expected.prompt, expected.max_tokens,
                                          std::string(1, static_cast<char>('a' + pick(0, 2))),
                                          pick(0, 4) == 0 ? "salt" : "", pick(0, 7) == 0,
                                          config.approximate_from > 0 && pick(0, 3) == 0);
      open[id] = std::move(expected);
      ++submitted;
    }
    const Step step = machine.step();
    EXPECT_TRUE(open.empty() || !step.empty() || depth > 1) << "requests wait, and no step";
    if (testing::Test::HasFailure()) return 0;
    for (auto it = open.begin(); it != open.end();) {
      const Expected& e = it->second;
      const auto answer = machine.answer(it->first, e.prompt.size());
      const bool done = std::ssize(answer) == e.max_tokens;
      if (done) {
        EXPECT_EQ(answer, alone(e.prompt, e.max_tokens));
      }
      if (done || pick(0, 99) == 0) {
        EXPECT_TRUE(machine.scheduler.end(it->first));
        it = open.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_LT(machine.steps, 1000 * requests) << "no end";
    if (machine.steps >= 1000 * requests) return 0;
  }
  machine.step();  // ends those that are under way
  if (depth == 1) {
    EXPECT_EQ(machine.dropped, 0);
  }
  const Scheduler::Counts counts = machine.scheduler.counts();
  EXPECT_EQ(counts.running + counts.waiting, 0);
  EXPECT_EQ(counts.pages.held, 0);
  EXPECT_EQ(counts.pages.free + counts.pages.cached, config.pages);
  return counts.preemptions;
}

}  // namespace braid::scheduler_test
