#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/kv/kv_store.h"
#include "braid/engine/requests/by_id.h"
#include "braid/engine/requests/step_cost.h"

namespace braid {

using RequestId = uint64_t;

struct SchedulerConfig {
  int64_t pages = 0;         // of the KV cache
  int64_t page_size = 64;    // tokens
  int64_t max_context = 0;   // tokens per sequence
  int64_t max_running = 32;  // sequences that have pages, at most
  int64_t max_step_tokens = 512;
  double max_step_ms = 0;      // limit of a step's predicted time (StepCost); 0: no limit
  int64_t max_waiting = 1024;  // requests that wait for pages, at most
  double queue_timeout_s = 0;  // a request's longest wait for its first step; 0: no limit
  int64_t max_scored = 64;     // a scored prompt's logits rows per step
  int64_t max_rows = 0;        // logits rows per step, at least max_running; 0: no limit
  bool prefix_cache = true;
  bool prompts_alone = false;  // a step with tokens of a prompt has no tokens of other sequences
  int groups = 1;  // ranks with keys of their own; sequences of two groups share no pages
  // Above 0: sequences with longer prompts have no group, and are divided over all. With
  // prompts_alone the other prompts share steps nevertheless.
  int64_t own_prompt = 0;
  // Above 0: prompts of so many tokens, unless their sequence is exact, are computed by
  // approximation, each alone in its steps. Pages of the two kinds are never shared.
  int64_t approximate_from = 0;
  bool approximate_shared = false;  // approximate sequences share pages with each other
  int64_t shared_tokens = 0;        // of a step with other prompts, at most; 0: max_step_tokens

  // Tokens of a step that sequences share, at most.
  int64_t most_shared() const { return shared_tokens > 0 ? shared_tokens : max_step_tokens; }
  // The most tokens of a sequence.
  int64_t room() const { return std::min(max_context, pages * page_size); }
};

// Stands for a token whose id is unknown: a step under way computes the token, or its mask is late.
inline constexpr int32_t kPendingToken = -1;

// A request as the scheduler sees it.
struct Sequence {
  RequestId id = 0;
  std::vector<int32_t> ids;   // the prompt, then the answer; the last ids may be kPendingToken
  int64_t max_tokens = 0;     // of the answer, at least 1
  std::string key;            // the client: steps are shared fairly among keys
  std::string salt;           // sequences of different salts share no pages
  bool exact = false;         // no approximation
  bool score_prompt = false;  // logits for every prompt token are wanted
  double arrival = 0;         // seconds
};

// A sequence's part of a step: tokens [begin, end) among its ids.
struct StepRow {
  RequestId id = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t scored = 0;   // last tokens of the row with wanted logits
  bool sample = false;  // the token after `end` is chosen from the last logits
  int64_t turn = 0;     // the sequence's preemptions so far
};

struct Step {
  std::vector<StepRow> rows;         // decodes first
  int64_t decodes = 0;               // of these, tokens of answers
  std::vector<RequestId> expired;    // ended here after queue_timeout_s
  std::vector<RequestId> preempted;  // gave up their pages
  int64_t tokens = 0;
  int64_t attended = 0;  // keys attended, summed over the step's tokens

  bool empty() const { return rows.empty(); }
};

// Chooses the tokens of each step from the requests and the free pages. The scheduler knows no
// model, clock or thread: the caller gives the time and computes the steps in order. Several steps
// may be under way, and a pending token of a step under way can be the next step's decode. After a
// preemption a prompt is computed again, once all tokens of the sequence are known.
// A step takes decodes first. Prompts share the rest of the budget in chunks with ends on page
// borders: half for the oldest prompts, half for the prompts with the fewest tokens left. When
// pages run out, cached prefixes are given up first. Then the sequence with the fewest computed
// tokens, except the oldest sequence, gives up all pages and is computed again later. With
// prompts_alone, or by approximation, the oldest prompt takes turns with the decodes and with
// prompts that share steps. Not thread-safe.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  // Fails with kInvalidArgument if a prompt of `prompt` tokens can never fit.
  static void check_prompt(const SchedulerConfig& config, int64_t prompt);

  // Accepts a request. Fails with kInvalidArgument if the request can never fit (the message names
  // the limit), and with kResource if max_waiting requests wait.
  void submit(Sequence sequence);

  // Ends a request at any time; full pages stay cached. Steps under way still write the request's
  // pages, before any later step can reuse them. False: the id is unknown.
  bool end(RequestId id);

  // Begins to read all sequences, which a computed step has pushed out of the caches.
  void fetch() const;
  // Chooses the next step. The caller passes the step to step_put() before the next call.
  Step next(double now);
  // The step is under way: its sampled tokens are pending.
  void step_put(const Step& step);
  // The oldest step under way ended without an error. `tokens` [sampling rows] holds a token for
  // each row with `sample`, also for requests ended meanwhile; for kPendingToken, give() follows.
  // A sequence with all its tokens gets no further row and stays until end().
  void step_done(const Step& step, std::span<const int32_t> tokens);
  // Sets the oldest kPendingToken of a sequence, after the token's step has ended.
  void give(RequestId id, int32_t token);

  // From hold() to release() a sequence gets no rows: the mask of its next token is late. The
  // caller releases a sequence that gives up its pages.
  void hold(RequestId id) { at(id).held = true; }
  void release(RequestId id) { at(id).held = false; }

  void set_cost(const StepCost& cost) { cost_ = cost; }

  const Sequence& sequence(RequestId id) const { return at(id).sequence; }
  std::span<const int32_t> pages_of(RequestId id) const { return at(id).holding.pages; }
  int64_t cached_tokens(RequestId id) const { return at(id).cached; }  // found when it first began
  // The group with the sequence's keys; -1: any group, or divided over all.
  int group_of(RequestId id) const { return config_.groups > 1 ? at(id).group : -1; }
  // Whether prompts of the sequence are computed by approximation.
  bool approximates(RequestId id) const { return approximates(at(id)); }
  int64_t preemptions(RequestId id) const { return at(id).preemptions; }
  bool contains(RequestId id) const { return entries_.contains(id); }

  struct Counts {
    int64_t running = 0;
    int64_t waiting = 0;
    int64_t preemptions = 0;     // so far
    int64_t prefix_queries = 0;  // tokens looked up in the prefix cache, so far
    int64_t prefix_hits = 0;     // tokens found in the prefix cache, so far
    // Tokens of exact sequences computed though their keys were there, by approximation, so far.
    int64_t approximate_passed = 0;
    int64_t evictions = 0;  // cached pages given up, so far
    KvStore::Counts pages;
  };
  Counts counts() const;
  // Longest wait among requests without a first step, seconds; 0 if no request waits.
  double oldest_wait(double now) const;
  // Fails with a broken invariant unless every page has exactly one holder.
  void check() const;

 private:
  struct Entry {
    Sequence sequence;
    KvHolding holding;     // empty while the request waits
    int64_t prompt = 0;    // tokens of the prompt
    int64_t computed = 0;  // tokens with keys in the cache once the steps under way end
    int64_t kept = 0;      // tokens with keys in the cache now
    int64_t pending = 0;   // pending tokens, at the end of the ids
    int64_t cached = 0;
    int64_t preemptions = 0;
    int group = 0;       // -1: divided over all groups
    bool begun = false;  // had a row in some step
    bool held = false;   // between hold() and release()

    int64_t size() const { return std::ssize(sequence.ids); }
    int64_t left() const { return size() - computed; }
    int64_t answer() const { return size() - prompt; }
    bool done() const { return answer() >= sequence.max_tokens; }
    bool running() const { return !holding.empty(); }
    bool decodes() const { return running() && !held && left() == 1 && answer() > 0; }
    // Decodes, or may end with a step under way and return its pages.
    bool busy() const { return pending > 0 || held || (decodes() && !done()); }
  };

  Entry& at(RequestId id);
  const Entry& at(RequestId id) const;
  // Requests with prompt tokens left, by served share of their key, then by age.
  std::vector<Entry*> prompts_by_age();
  void expire(double now, Step& step);
  void add_decodes(Step& step);
  // Prompts that may share a step, or the oldest of those that are alone in theirs.
  enum class Prompts : uint8_t { all, shared, alone };
  void add_prompts(Step& step, Prompts which = Prompts::all);
  bool divided(const Entry& entry) const {
    return config_.own_prompt > 0 && entry.prompt > config_.own_prompt;
  }
  bool approximates(const Entry& entry) const {
    return config_.approximate_from > 0 && entry.prompt >= config_.approximate_from &&
           !entry.sequence.exact && !entry.sequence.score_prompt;
  }
  bool alone(const Entry& entry) const {
    return approximates(entry) ||
           (config_.prompts_alone && (config_.own_prompt == 0 || divided(entry)));
  }
  // The salt for pages without a group, of approximate or exact keys.
  std::string salt_of(const Entry& entry, bool approximate) const;
  // Gives up the pages of the sequence with the fewest computed tokens. False: only the oldest
  // sequence is left.
  bool preempt(Step& step);
  bool admit(Entry& entry);
  // Takes the cached pages of the entry's tokens, in the group with the least load afterwards.
  KvHolding find_group(Entry& entry);
  // Takes pages that other sequences have computed since. Then: whether another sequence in this
  // step, among `others`, computes the very next page.
  bool follows(Entry& entry, std::span<Entry* const> others);
  // Whether the entry's next page equals a page of `other`'s first `tokens` tokens.
  bool same_page(const Entry& entry, const Entry& other, int64_t tokens) const;
  // Whether a prompt may use the prefix cache: a scored prompt needs the logits of every token.
  static bool reuses(const Entry& entry);
  int64_t promised_pages() const;
  int64_t expected_growth() const;
  // How many of `share` tokens a prompt can use behind the `given` ones that it has in this step;
  // with max_step_ms the step takes at most `most_ms`.
  int64_t chunk_of(const Entry& entry, int64_t given, int64_t share, const Step& planned,
                   double most_ms) const;
  // A step without a token of a prompt, once too often: in turns the oldest that can, and the one
  // with the fewest tokens left, gets a page's worth. The oldest takes pages from others if
  // `alone`: no sequence is busy().
  void force_prompt(Step& step, std::span<Entry* const> by_age, std::span<Entry* const> by_left,
                    bool alone);
  // False, and nothing changed, where too few pages are left.
  bool add_row(Step& step, Entry& entry, int64_t tokens);

  const SchedulerConfig config_;
  StepCost cost_;
  KvStore store_;
  ById<RequestId, std::unique_ptr<Entry>> entries_;  // by age
  std::map<std::string, double> served_;  // tokens computed, by key, of keys with requests
  double mean_answer_ = 128;              // tokens of recently ended answers
  Counts counts_;                         // running totals
  bool preempted_now_ = false;            // the step at hand took pages from a sequence
  int steps_without_prompt_ = 0;          // in a row, while prompts were there
  bool prompt_last_ = false;              // the step before was a prompt's
  bool least_left_next_ = false;          // whose turn it is in steps of at most a page
};

}  // namespace braid
