#include "braid/engine/requests/scheduler.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

constexpr int kPatience = 3;          // most steps in a row without prompt tokens
constexpr double kMeanWeight = 0.05;  // weight of a further answer in mean_answer_

int64_t keys_attended(int64_t begin, int64_t end) {
  return (end - begin) * (begin + end + 1) / 2;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config), store_(config.pages, config.page_size, config.prefix_cache) {
  BRAID_CHECK(config.pages > 0 && config.page_size > 0 && config.max_context > 0);
  if (config.max_running < 1) {
    fail(ErrorCode::kInvalidArgument, "{} sequences at once, wanted at least 1",
         config.max_running);
  }
  if (config.max_step_tokens < config.max_running + config.page_size) {
    fail(ErrorCode::kInvalidArgument,
         "a step of {} tokens at most, wanted at least {}: one for each of {} sequences and a page "
         "of {} of a prompt",
         config.max_step_tokens, config.max_running + config.page_size, config.max_running,
         config.page_size);
  }
}

Scheduler::Entry& Scheduler::at(RequestId id) {
  return *entries_.at(id);
}

const Scheduler::Entry& Scheduler::at(RequestId id) const {
  return const_cast<Scheduler*>(this)->at(id);
}

void Scheduler::check_prompt(const SchedulerConfig& config, int64_t prompt) {
  if (prompt == 0) fail(ErrorCode::kInvalidArgument, "the prompt is empty: it has no tokens");
  if (prompt < config.room()) return;
  fail(ErrorCode::kInvalidArgument,
       "the prompt has {} tokens, the {} holds {}: at most {} fit with room for an answer", prompt,
       config.room() < config.max_context ? "KV cache" : "context", config.room(),
       config.room() - 1);
}

void Scheduler::submit(Sequence sequence) {
  const int64_t prompt = std::ssize(sequence.ids);
  check_prompt(config_, prompt);
  BRAID_CHECK(sequence.max_tokens > 0);
  const int64_t waiting =
      std::ranges::count_if(entries_, [](const auto& entry) { return !entry.second->running(); });
  if (waiting >= config_.max_waiting) {
    fail(ErrorCode::kResource, "{} requests wait already, the queue holds {}", waiting,
         config_.max_waiting);
  }
  sequence.max_tokens = std::min(sequence.max_tokens, config_.room() - prompt);
  if (!served_.contains(sequence.key)) {
    // A new key starts level with the least served key.
    const auto least =
        std::ranges::min_element(served_, {}, [](const auto& entry) { return entry.second; });
    served_[sequence.key] = least == served_.end() ? 0 : least->second;
  }
  const RequestId id = sequence.id;
  entries_.add(id, std::make_unique<Entry>(
                       Entry{.sequence = std::move(sequence), .holding = {}, .prompt = prompt}));
}

bool Scheduler::end(RequestId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return false;
  Entry& entry = *it->second;
  if (entry.begun) {
    mean_answer_ += kMeanWeight * (static_cast<double>(entry.answer()) - mean_answer_);
  }
  store_.close(entry.holding);
  const std::string key = entry.sequence.key;
  entries_.erase(it);
  const auto same_key = [&](const auto& other) { return other.second->sequence.key == key; };
  if (std::ranges::none_of(entries_, same_key)) served_.erase(key);
  return true;
}

void Scheduler::fetch() const {
  for (const auto& [id, entry] : entries_) prefetch(entry.get(), entry.get() + 1);
  for (const auto& [id, entry] : entries_) {
    const std::vector<int32_t>& pages = entry->holding.pages;
    const int32_t* const last = &entry->sequence.ids.back();
    prefetch(last, last + 1);
    prefetch(pages.data(), pages.data() + pages.size());
  }
}

Step Scheduler::next(double now) {
  Step step;
  preempted_now_ = false;
  expire(now, step);
  if (!config_.prompts_alone && config_.approximate_from == 0) {
    add_decodes(step);
    add_prompts(step);
    return step;
  }
  const auto add_shared = [&] {
    add_decodes(step);
    if (!config_.prompts_alone || config_.own_prompt > 0) add_prompts(step, Prompts::shared);
  };
  if (prompt_last_) add_shared();
  prompt_last_ = false;
  if (!step.empty()) return step;
  add_prompts(step, Prompts::alone);
  prompt_last_ = !step.empty();
  if (step.empty()) add_shared();
  return step;
}

void Scheduler::expire(double now, Step& step) {
  if (config_.queue_timeout_s <= 0) return;
  for (const auto& [id, entry] : entries_) {
    if (!entry->begun && now - entry->sequence.arrival > config_.queue_timeout_s) {
      step.expired.push_back(id);
    }
  }
  for (const RequestId id : step.expired) end(id);
}

bool Scheduler::preempt(Step& step) {
  Entry* victim = nullptr;
  bool oldest = true;
  for (const auto& [id, entry] : entries_) {
    if (!entry->running()) continue;
    if (!oldest && (victim == nullptr || entry->computed <= victim->computed)) victim = entry.get();
    oldest = false;
  }
  if (victim == nullptr) return false;
  store_.close(victim->holding);
  victim->computed = victim->kept = 0;
  victim->held = false;
  ++victim->preemptions;
  ++counts_.preemptions;
  preempted_now_ = true;
  step.preempted.push_back(victim->sequence.id);
  return true;
}

void Scheduler::add_decodes(Step& step) {
  for (const auto& [id, entry] : entries_) {
    if (!entry->decodes() || entry->done()) continue;
    while (entry->running() && !store_.grow(entry->holding, entry->computed + 1)) {
      BRAID_CHECK(preempt(step), "one sequence alone does not fit in {} pages", config_.pages);
    }
  }
  for (const auto& [id, entry] : entries_) {
    if (entry->decodes() && !entry->done()) add_row(step, *entry, 1);
  }
  step.decodes = std::ssize(step.rows);
}

std::vector<Scheduler::Entry*> Scheduler::prompts_by_age() {
  std::vector<Entry*> prompts;
  for (const auto& [id, entry] : entries_) {
    if (entry->decodes() || entry->done() || entry->pending > 0 || entry->held) continue;
    prompts.push_back(entry.get());
  }
  std::ranges::stable_sort(prompts, {},
                           [&](const Entry* entry) { return served_.at(entry->sequence.key); });
  return prompts;
}

int64_t Scheduler::promised_pages() const {
  int64_t pages = 0;
  for (const auto& [id, entry] : entries_) {
    if (!entry->running()) continue;
    pages += std::max<int64_t>(
        0, ceil_div(entry->size(), config_.page_size) - std::ssize(entry->holding.pages));
  }
  return pages;
}

int64_t Scheduler::expected_growth() const {
  int64_t pages = 0;
  for (const auto& [id, entry] : entries_) {
    if (!entry->running()) continue;
    const int64_t more = std::clamp<int64_t>(static_cast<int64_t>(mean_answer_) - entry->answer(),
                                             1, entry->sequence.max_tokens);
    pages += ceil_div(entry->size() + more, config_.page_size) -
             ceil_div(entry->size(), config_.page_size);
  }
  return pages;
}

bool Scheduler::reuses(const Entry& entry) {
  return !entry.sequence.score_prompt || entry.answer() > 0;
}

bool Scheduler::same_page(const Entry& entry, const Entry& other, int64_t tokens) const {
  const auto page = [&](const Entry& e) {
    return std::span(e.sequence.ids)
        .subspan(static_cast<size_t>(entry.computed))
        .first(static_cast<size_t>(std::min(config_.page_size, e.size() - entry.computed)));
  };
  return tokens == entry.computed && other.holding.root == entry.holding.root &&
         other.holding.path == entry.holding.path && std::ranges::equal(page(other), page(entry));
}

bool Scheduler::follows(Entry& entry, std::span<Entry* const> others) {
  if (!config_.prefix_cache || !reuses(entry) || !entry.holding.shared) return false;
  if (entry.computed != entry.kept || entry.computed % config_.page_size != 0) return false;
  const int64_t before = entry.computed;
  entry.computed = std::max(before, store_.find(entry.holding, entry.sequence.ids));
  entry.kept = entry.computed;
  if (!entry.begun) entry.cached = entry.computed;
  counts_.prefix_hits += entry.computed - before;
  if (entry.left() <= config_.page_size) return false;
  const auto computes_page = [&](const Entry& other) {  // in a step under way
    return other.computed >= entry.computed + config_.page_size &&
           same_page(entry, other, other.kept);
  };
  return std::ranges::any_of(
             others,
             [&](const Entry* other) { return same_page(entry, *other, other->computed); }) ||
         std::ranges::any_of(entries_, [&](const auto& e) { return computes_page(*e.second); });
}

int64_t Scheduler::chunk_of(const Entry& entry, int64_t given, int64_t share, const Step& planned,
                            double most_ms) const {
  const int64_t begin = entry.computed + given;
  int64_t end = std::min(begin + share, entry.size());
  if (!reuses(entry)) {
    end = std::min({end, entry.computed + config_.max_scored, entry.prompt});
  }
  const auto too_long = [&] {
    return config_.max_step_ms > 0 &&
           cost_.of(planned.tokens + end - begin, planned.attended + keys_attended(begin, end)) >
               most_ms;
  };
  // A chunk ends on a page border or with the sequence.
  const auto border = [&](int64_t token) { return token / config_.page_size * config_.page_size; };
  if (end < entry.size()) end = border(end);
  while (end > begin && too_long()) end = border(end - 1);
  return std::max<int64_t>(end - begin, 0);
}

void Scheduler::add_prompts(Step& step, Prompts which) {
  std::vector<Entry*> by_age = prompts_by_age();
  // Requests behind a request without pages take none: order is kept.
  bool blocked = false;
  std::erase_if(by_age, [&](Entry* entry) {
    if (entry->running()) return false;
    blocked = blocked || !admit(*entry);
    return blocked;
  });
  if (which != Prompts::all) {
    std::erase_if(by_age,
                  [&](const Entry* entry) { return alone(*entry) != (which == Prompts::alone); });
  }
  std::vector<Entry*> fresh;
  for (Entry* entry : by_age) {
    if (!follows(*entry, fresh)) fresh.push_back(entry);
  }
  if (fresh.empty()) return;
  if (which == Prompts::alone) fresh.erase(fresh.begin() + 1, fresh.end());

  std::vector<Entry*> by_left = fresh;
  std::ranges::stable_sort(by_left, {}, [](const Entry* entry) { return entry->left(); });
  std::map<const Entry*, int64_t> chunks;
  const int64_t most = which == Prompts::shared ? config_.most_shared() : config_.max_step_tokens;
  int64_t left = std::max(most - step.tokens, config_.page_size);
  if (which == Prompts::shared && config_.own_prompt > 0) {
    left = std::min(left, config_.groups * config_.own_prompt);
  }
  // Rows left for scored prompts, beside a row for each other sequence.
  int64_t rows =
      config_.max_rows > 0
          ? std::max<int64_t>(1, config_.max_rows - std::ssize(step.rows) - std::ssize(fresh))
          : config_.max_step_tokens;
  Step planned = {.tokens = step.tokens, .attended = step.attended};
  const auto deal = [&](std::span<Entry* const> prompts, int64_t share, double most_ms) {
    for (Entry* entry : prompts) {
      int64_t& chunk = chunks[entry];
      const bool scored = !reuses(*entry);
      const int64_t most = scored ? std::min(left, rows) : left;
      const int64_t n = chunk_of(*entry, chunk, std::min(share, most), planned, most_ms);
      if (scored) rows -= n;
      const int64_t begin = entry->computed + chunk;
      chunk += n;
      share -= n;
      left -= n;
      planned.tokens += n;
      planned.attended += keys_attended(begin, begin + n);
    }
  };
  deal(by_left, left / 2, (cost_.of(step.tokens, step.attended) + config_.max_step_ms) / 2);
  // Where half holds no page, the two orders take turns.
  const bool by_turns = planned.tokens == step.tokens;
  const std::vector<Entry*>& order = by_turns && least_left_next_ ? by_left : fresh;
  deal(order, left, config_.max_step_ms);

  const int64_t before = step.tokens;
  for (Entry* entry : fresh) {
    if (chunks[entry] > 0) add_row(step, *entry, chunks[entry]);
  }
  steps_without_prompt_ = step.tokens > before ? 0 : steps_without_prompt_ + 1;
  if (by_turns && step.tokens > before) least_left_next_ = !least_left_next_;
  const bool alone = std::ranges::none_of(entries_, [](const auto& e) { return e.second->busy(); });
  if (step.tokens == before && (alone || steps_without_prompt_ > kPatience)) {
    force_prompt(step, fresh, by_left, alone);
  }
}

void Scheduler::force_prompt(Step& step, std::span<Entry* const> by_age,
                             std::span<Entry* const> by_left, bool alone) {
  const auto add_page = [&](std::span<Entry* const> prompts, bool preempts) {
    for (Entry* entry : prompts) {
      if (!entry->running()) continue;
      const int64_t n =
          std::min(config_.page_size - entry->computed % config_.page_size, entry->left());
      bool added = add_row(step, *entry, n);
      // Prompts hold all pages and none is done: a prompt gives its pages up for the oldest.
      while (!added && preempts && preempt(step) && entry->running()) {
        added = add_row(step, *entry, n);
      }
      if (added) return true;
    }
    return false;
  };
  least_left_next_ = !least_left_next_;
  if (least_left_next_ || !add_page(by_left, false)) add_page(by_age, alone);
  steps_without_prompt_ = 0;
}

bool Scheduler::add_row(Step& step, Entry& entry, int64_t tokens) {
  const int64_t end = entry.computed + tokens;
  if (!store_.grow(entry.holding, end)) return false;
  const bool last = end == entry.size();
  const bool scored = !reuses(entry) && entry.computed < entry.prompt;
  step.rows.push_back({.id = entry.sequence.id,
                       .begin = entry.computed,
                       .end = end,
                       .scored = scored ? tokens
                                 : last ? 1
                                        : 0,
                       .sample = last,
                       .turn = entry.preemptions});
  step.tokens += tokens;
  step.attended += keys_attended(entry.computed, end);
  entry.begun = true;
  return true;
}

void Scheduler::step_put(const Step& step) {
  for (const StepRow& row : step.rows) {
    Entry& entry = at(row.id);
    BRAID_CHECK(entry.computed == row.begin, "request {} has {} computed tokens, not {}", row.id,
                entry.computed, row.begin);
    entry.computed = row.end;
    served_.at(entry.sequence.key) += static_cast<double>(row.end - row.begin);
    if (!row.sample) continue;
    entry.sequence.ids.push_back(kPendingToken);
    ++entry.pending;
  }
}

void Scheduler::step_done(const Step& step, std::span<const int32_t> tokens) {
  size_t next = 0;
  for (const StepRow& row : step.rows) {
    const int32_t token = row.sample ? tokens[next++] : kPendingToken;
    const auto it = entries_.find(row.id);
    if (it == entries_.end()) continue;
    Entry& entry = *it->second;
    if (row.turn == entry.preemptions) {  // otherwise the pages were given up meanwhile
      entry.kept = row.end;
      store_.keep(entry.holding, entry.sequence.ids, row.end);
    }
    if (token != kPendingToken) give(row.id, token);
  }
  BRAID_CHECK(next == tokens.size(), "{} tokens for {} rows that sample", tokens.size(), next);
}

void Scheduler::give(RequestId id, int32_t token) {
  Entry& entry = at(id);
  BRAID_CHECK(entry.pending > 0, "request {} waits for no token", id);
  entry.sequence.ids[static_cast<size_t>(entry.size() - entry.pending)] = token;
  --entry.pending;
}

}  // namespace braid
