#include "braid/engine/trace/trace_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int32_t kVocabulary = 1 << 30;  // of prompts without a model

// A set of ranks with its requests.
struct Set {
  Set(const SchedulerConfig& config, size_t number) : scheduler(config), number(number) {}
  Scheduler scheduler;
  size_t number = 0;
  struct UnderWay {
    Step step;
    double end = 0;
  };
  std::deque<UnderWay> steps;  // the oldest first
  double end() const { return steps.empty() ? kNever : steps.front().end; }
  int64_t left = 0;                      // tokens to compute, of all requests
  std::map<RequestId, size_t> requests;  // by index in the replay
};

class Replaying {
 public:
  Replaying(const ReplayConfig& config, StepTimes& times) : config_(config), times_(times) {
    BRAID_CHECK(config.sets > 0);
    for (int i = 0; i < config.sets; ++i) {
      sets_.push_back(std::make_unique<Set>(config.scheduler, sets_.size()));
    }
  }

  TraceReplay run(const TraceSource& source) {
    TraceRequest request;
    bool more = source(request);
    while (true) {
      Set& set = **std::ranges::min_element(sets_, {}, [](const auto& s) { return s->end(); });
      if (more && request.arrival <= set.end()) {
        arrive(request);
        more = source(request);
      } else if (!set.steps.empty()) {
        finish(set);
      } else {
        break;
      }
    }
    for (const auto& s : sets_) {
      BRAID_CHECK(s->requests.empty(), "{} requests were left", s->requests.size());
      result_.preemptions += s->scheduler.counts().preemptions;
    }
    return std::move(result_);
  }

 private:
  void arrive(const TraceRequest& request) {
    Set& set = **std::ranges::min_element(sets_, {}, [](const auto& s) { return s->left; });
    const size_t index = result_.requests.size();
    ReplayedRequest& made = result_.requests.emplace_back(
        ReplayedRequest{.input = request.input, .arrival = request.arrival});
    const RequestId id = index + 1;
    if (request.input >= config_.scheduler.room()) {
      made.refused = true;
      return;
    }
    const int64_t most = config_.scheduler.room() - request.input;
    set.scheduler.submit({.id = id,
                          .ids = prompt_ids(request, kVocabulary),
                          .max_tokens = request.output,
                          .key = "",
                          .salt = request.blocks.empty() ? std::to_string(id) : "",
                          .arrival = request.arrival});
    set.left += request.input + std::min(request.output, most);
    set.requests[id] = index;
    begin(set, request.arrival);
  }

  // Chooses steps until enough are under way.
  void begin(Set& set, double now) {
    while (set.steps.size() < config_.depth) {
      const Step step = set.scheduler.next(now);
      if (step.empty()) break;
      const double start = set.steps.empty() ? now : set.steps.back().end;
      set.steps.push_back({step, start + config_.between + put(set, step)});
    }
    BRAID_CHECK(!set.steps.empty() || set.requests.empty(), "{} requests wait for no step",
                set.requests.size());
  }

  // Seconds of the step.
  double put(Set& set, const Step& step) {
    rows_.clear();
    for (const StepRow& row : step.rows) {
      ReplayedRequest& request = result_.requests[set.requests.at(row.id)];
      const bool decode = row.begin >= request.input;
      rows_.push_back({.tokens = row.end - row.begin,
                       .cached = row.begin,
                       .group = set.scheduler.group_of(row.id),
                       .decode = decode,
                       .scored = row.scored,
                       .approximate = set.scheduler.approximates(row.id),
                       .pages = set.scheduler.pages_of(row.id)});
      if (!decode) result_.prompt_tokens += std::min(row.end, request.input) - row.begin;
    }
    const double seconds = times_.seconds(rows_);
    BRAID_CHECK(seconds > 0, "a step of {} tokens takes {} s", step.tokens, seconds);
    set.scheduler.step_put(step);
    result_.busy += seconds;
    result_.sums.add(rows_, seconds);
    ++result_.steps;
    return seconds;
  }

  void finish(Set& set) {
    const auto [step, now] = std::move(set.steps.front());
    set.steps.pop_front();
    const std::vector<int32_t> tokens(
        static_cast<size_t>(std::ranges::count_if(step.rows, &StepRow::sample)), 1);
    set.scheduler.step_done(step, tokens);
    for (const StepRow& row : step.rows) {
      if (row.sample) token(set, row.id, now);
    }
    result_.seconds = std::max(result_.seconds, now);
    if (config_.on_step) config_.on_step(now, step);
    begin(set, now);
  }

  void token(Set& set, RequestId id, double now) {
    ReplayedRequest& r = result_.requests[set.requests.at(id)];
    if (r.output++ == 0) {
      r.first = now;
      r.cached = set.scheduler.cached_tokens(id);
      set.left -= r.input;
    } else {
      result_.gaps.push_back({static_cast<float>(now - r.last), r.input >= config_.long_tokens});
    }
    --set.left;
    r.last = now;
    if (r.output < set.scheduler.sequence(id).max_tokens) return;
    set.scheduler.end(id);
    set.requests.erase(id);
  }

  const ReplayConfig& config_;
  StepTimes& times_;
  std::vector<std::unique_ptr<Set>> sets_;
  std::vector<TimedRow> rows_;
  TraceReplay result_;
};

}  // namespace

void StepSums::add(std::span<const TimedRow> rows, double seconds) {
  StepSum& sum = std::ranges::all_of(rows, &TimedRow::decode) ? answers : prompts;
  ++sum.steps;
  for (const TimedRow& row : rows) sum.tokens += row.tokens;
  sum.seconds += seconds;
}

TraceReplay replay_trace(const TraceSource& source, const ReplayConfig& config, StepTimes& times) {
  return Replaying(config, times).run(source);
}

std::vector<int32_t> prompt_ids(const TraceRequest& request, int32_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(request.input));
  for (int64_t i = 0; i < request.input; ++i) {
    const int64_t block = request.blocks.empty()
                              ? i / kTraceBlock
                              : request.blocks[static_cast<size_t>(i / kTraceBlock)];
    ids[static_cast<size_t>(i)] =
        static_cast<int32_t>(static_cast<uint64_t>(block * kTraceBlock + i % kTraceBlock) %
                             static_cast<uint64_t>(vocabulary));
  }
  return ids;
}

}  // namespace braid
