#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "golden/support/answers.h"
#include "golden/support/forward.h"
#include "golden/support/rounding.h"

// Answers against logits of the same tokens, computed apart from every engine of many requests.
// Each token is judged behind the tokens that the answer really has, so that one near tie, which
// rounding may turn either way, hides nothing of what follows.
namespace braid::golden {

// An answer's prompt and tokens, and the reference's logits of them.
struct ForcedAnswer {
  ForcedAnswer(const AnswerRequest& r, const Answer& a, Runner& reference)
      : request(r), answer(a), ids(r.prompt) {
    for (const SampledToken& token : a.tokens) ids.push_back(token.id);
    rows = prompt_logits(reference, ids, ids.size());
  }

  const AnswerRequest& request;
  const Answer& answer;
  std::vector<int32_t> ids;
  Rows rows;  // [prompt + tokens][V]
};

// Judges answers whose logits and log-probabilities are within `bound` of the reference's.
struct ForcedCheck {
  double bound = 0;
  std::vector<int32_t> ends;  // end-of-generation ids
  int64_t context = 0;        // tokens of a sequence
  double squares = 0;         // of the distances of log-probabilities that the answers report
  double most = 0;            // of them
  int64_t distances = 0;
  std::vector<std::string> faults;  // of the answer at hand

  std::vector<std::string> faults_of(const ForcedAnswer& a) {
    faults.clear();
    const AnswerRequest& r = a.request;
    const std::vector<SampledToken>& tokens = a.answer.tokens;
    if (r.prompt_logprobs >= 0) {
      expect(a.answer.prompt.size() + 1 == r.prompt.size(),
             "{} log-probabilities of a prompt of {}", a.answer.prompt.size(), r.prompt.size());
      for (size_t i = 0; i < a.answer.prompt.size(); ++i) {
        expect(a.answer.prompt[i].id == a.ids[i + 1], "prompt token {} is {}, not {}", i + 1,
               a.answer.prompt[i].id, a.ids[i + 1]);
        reported(a.rows[i], a.answer.prompt[i], i);
      }
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t at = r.prompt.size() - 1 + i;
      if (r.sampling.logprobs >= 0) reported(a.rows[at], tokens[i], at);
      expect(may_come(a, i, tokens[i].id), "token {} is {}, which the reference does not choose", i,
             tokens[i].id);
      expect(!ends_it(r, tokens[i].id), "token {} is {}, which ends an answer", i, tokens[i].id);
    }
    const AnswerReason reason = a.answer.end.reason;
    if (reason == AnswerReason::length) {
      const int64_t room = context - std::ssize(r.prompt);
      expect(std::ssize(tokens) == std::min(r.max_tokens, room), "{} tokens of at most {}",
             tokens.size(), r.max_tokens);
    } else if (reason == AnswerReason::stop) {
      expect(std::ssize(tokens) + 1 == a.answer.end.answer_tokens, "{} tokens, {} counted",
             tokens.size(), a.answer.end.answer_tokens);
      bool any = false;
      for (int32_t id = 0; id < std::ssize(a.rows[0]); ++id) {
        any |= ends_it(r, id) && may_come(a, tokens.size(), id);
      }
      expect(any, "it ends behind {} tokens, which the reference does not choose", tokens.size());
    }
    return faults;
  }

 private:
  template <class... T>
  void expect(bool ok, fmt::format_string<T...> text, T&&... values) {
    if (!ok) faults.push_back(fmt::format(text, std::forward<T>(values)...));
  }

  bool ends_it(const AnswerRequest& r, int32_t id) const {
    return std::ranges::count(r.stop_ids, id) > 0 ||
           (!r.ignore_eos && std::ranges::count(ends, id) > 0);
  }

  void reported(const std::vector<float>& row, const SampledToken& token, size_t at) {
    const double log_sum = log_sum_exp(row);
    const auto near = [&](int32_t id, float logprob) {
      const double d = std::abs(row[static_cast<size_t>(id)] - log_sum - logprob);
      squares += d * d;
      most = std::max(most, d);
      ++distances;
      expect(d <= bound, "the log-probability of {} at {} is {}, {} from the reference's", id, at,
             logprob, d);
    };
    near(token.id, token.logprob);
    if (token.top.empty()) return;
    near(token.top[0].id, token.top[0].logprob);
    const double best = *std::ranges::max_element(row) - log_sum;
    expect(std::abs(token.top[0].logprob - best) <= bound, "the best at {} has {}, not {}", at,
           token.top[0].logprob, best);
  }

  // The reference's logits of the token behind `n` others, as the request changes them.
  std::vector<double> changed(const ForcedAnswer& a, size_t n) const {
    const AnswerRequest& r = a.request;
    const SamplingParams& p = r.sampling;
    const size_t prompt = r.prompt.size();
    const std::vector<float>& row = a.rows[prompt - 1 + n];
    const std::vector<int32_t> generated(a.ids.begin() + static_cast<ptrdiff_t>(prompt),
                                         a.ids.begin() + static_cast<ptrdiff_t>(prompt + n));
    std::vector<double> m(row.begin(), row.end());
    for (const auto& [id, add] : p.logit_bias) m[static_cast<size_t>(id)] += add;
    for (int32_t id = 0; id < std::ssize(m); ++id) {
      double& x = m[static_cast<size_t>(id)];
      const auto times = static_cast<double>(std::ranges::count(generated, id));
      if (times > 0) x -= p.presence_penalty + p.frequency_penalty * times;
      if (times > 0 || std::ranges::count(r.prompt, id) > 0) {
        x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
      }
      const bool too_early =
          std::ssize(generated) < r.min_tokens &&
          (std::ranges::count(ends, id) + std::ranges::count(r.stop_ids, id)) > 0;
      bool allowed = true;
      if (r.mask) {
        const auto words = r.mask(generated);
        const auto i = static_cast<size_t>(id);
        allowed = words.empty() || (words[i / 32] >> (i % 32) & 1) != 0;
      }
      if (too_early || !allowed) x = -std::numeric_limits<double>::infinity();
    }
    return m;
  }

  // Whether logits within the bound of the reference's choose `id` behind `n` tokens.
  bool may_come(const ForcedAnswer& a, size_t n, int32_t id) const {
    const SamplingParams& p = a.request.sampling;
    const std::vector<double> m = changed(a, n);
    const double x = m[static_cast<size_t>(id)];
    if (std::isinf(x)) return false;
    const double slack = bound * std::max(p.repetition_penalty, 1 / p.repetition_penalty);
    const double best = *std::ranges::max_element(m);
    if (p.temperature == 0) return x + 2 * slack >= best;
    // What is surely ahead of the token, in number and in probability.
    double ahead = 0, total = 0, before = 0;
    int64_t better = 0;
    for (size_t i = 0; i < m.size(); ++i) {
      const double weight = std::exp((m[i] - best) / p.temperature);
      total += weight;
      if (i < static_cast<size_t>(id)) before += weight;
      if (m[i] <= x + 2 * slack) continue;
      ++better;
      ahead += weight;
    }
    // A set's odds change by exp(2 slack / temperature) at most.
    const double shift = std::tanh(slack / p.temperature / 2);
    if (p.top_k > 0 && better >= p.top_k) return false;
    if (p.top_p < 1 && ahead / total >= p.top_p + shift) return false;
    if (p.top_k > 0 || p.top_p < 1) return true;
    const double u = uniform(p.seed, n), own = std::exp((x - best) / p.temperature);
    return u >= before / total - shift && u <= (before + own) / total + shift;
  }

  // The random number of the token behind `n` others: SplitMix64.
  static double uniform(uint64_t seed, size_t n) {
    uint64_t z = seed + 0x9e3779b97f4a7c15u * (n + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1.0p-53;
  }
};

// What rounding to bf16 between ops does to log-probabilities: the ops' references beside f32.
struct Rounding {
  double squares = 0;
  int64_t distances = 0;

  double mean() const { return std::sqrt(squares / static_cast<double>(distances)); }
  // The largest of this answer's.
  double add(const Model& model, const ForcedAnswer& a) {
    double most = 0;
    const Rows rounded = rounded_logits(model, a.ids);
    for (size_t i = 0; i < rounded.size(); ++i) {
      const double shift = log_sum_exp(rounded[i]) - log_sum_exp(a.rows[i]);
      for (size_t id = 0; id < rounded[i].size(); ++id) {
        const double d = rounded[i][id] - a.rows[i][id] - shift;
        squares += d * d;
        most = std::max(most, std::abs(d));
        ++distances;
      }
    }
    return most;
  }
};

}  // namespace braid::golden
