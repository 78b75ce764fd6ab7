#include "braid/engine/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "braid/base/error.h"
#include "braid/kernels/cpu/pointwise/largest.h"

namespace braid {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr uint64_t kRandomStep = 0x9e3779b97f4a7c15u;

void require(bool ok, std::string_view parameter, double value, std::string_view allowed) {
  if (!ok) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, allowed is {}", parameter, value, allowed);
  }
}

bool more_likely(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
}

cpu::Largest largest_of(std::span<const float> logits) {
  return cpu::largest(logits.data(), std::ssize(logits));
}

void keep_only(std::span<const uint32_t> allowed, std::span<float> logits) {
  BRAID_CHECK(allowed.size() == (logits.size() + 31) / 32, "a mask of {} words for {} tokens",
              allowed.size(), logits.size());
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool may = (allowed[i / 32] >> (i % 32) & 1) != 0;
    any |= may && logits[i] > -kInfinity;
    if (!may) logits[i] = -kInfinity;
  }
  if (!any) fail(ErrorCode::kInvalidArgument, "{}", kNoTokenAllowed);
}

// Of all tokens, by `uniform` in [0, 1); the logits become weights.
int32_t draw_of_all(std::span<float> logits, float temperature, double uniform) {
  const float top = largest_of(logits).value;
  double total = 0;
  for (float& x : logits) {
    x = std::exp((x - top) / temperature);
    total += x;
  }
  double left = uniform * total;
  size_t last = 0;  // with a weight: sums may round past the end
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == 0) continue;
    left -= logits[i];
    if (left < 0) return static_cast<int32_t>(i);
    last = i;
  }
  return static_cast<int32_t>(last);
}

std::vector<TokenLogprob> most_likely(std::span<const float> logits, double log_sum, int count) {
  std::vector<TokenLogprob> all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    all.push_back({static_cast<int32_t>(i), static_cast<float>(logits[i] - log_sum)});
  }
  const auto n = std::min<ptrdiff_t>(count, std::ssize(all));
  std::partial_sort(all.begin(), all.begin() + n, all.end(), more_likely);
  all.resize(n);
  return all;
}

}  // namespace

void check(const SamplingParams& p) {
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature,
          "0 or more");
  require(p.top_k >= 0, "top-k", p.top_k, "0 (all) or more");
  require(p.top_p > 0 && p.top_p <= 1, "top-p", p.top_p, "above 0, up to 1");
  require(p.min_p >= 0 && p.min_p <= 1, "min-p", p.min_p, "0 to 1");
  require(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition-penalty",
          p.repetition_penalty, "above 0");
  require(std::abs(p.frequency_penalty) <= 100, "frequency-penalty", p.frequency_penalty,
          "-100 to 100");
  require(std::abs(p.presence_penalty) <= 100, "presence-penalty", p.presence_penalty,
          "-100 to 100");
  for (const auto& [id, bias] : p.logit_bias) {
    require(id >= 0, "logit-bias", id, "an id of the vocabulary");
    require(std::abs(bias) <= 100, "logit-bias", bias, "-100 to 100");
  }
  require(p.logprobs >= -1 && p.logprobs <= 1000, "logprobs", p.logprobs, "0 to 1000");
}

bool usable(std::span<const float> logits) {
  return most_likely_token(logits) >= 0;
}

int32_t most_likely_token(std::span<const float> logits) {
  const cpu::Largest best = largest_of(logits);
  return best.numbers ? static_cast<int32_t>(best.at) : -1;
}

double log_sum_exp(std::span<const float> logits) {
  const double top = largest_of(logits).value;
  double sum = 0;
  for (float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

SampledToken log_probability(std::span<const float> logits, int32_t id, int count) {
  const double log_sum = log_sum_exp(logits);
  return {.id = id,
          .logprob = static_cast<float>(logits[id] - log_sum),
          .top = most_likely(logits, log_sum, count)};
}

Sampler::Sampler(const SamplingParams& params) : params_(params), state_(params.seed) {
  check(params);
}

bool Sampler::plain() const {
  return params_.repetition_penalty == 1 && params_.frequency_penalty == 0 &&
         params_.presence_penalty == 0 && params_.logit_bias.empty();
}

void Sampler::set_place(int64_t generated) {
  state_ = params_.seed + kRandomStep * static_cast<uint64_t>(generated);
}

SampledToken Sampler::sample(std::span<float> logits, std::span<const int32_t> prompt,
                             std::span<const int32_t> generated,
                             std::span<const uint32_t> allowed) {
  const bool plain = this->plain();
  const auto choose = [&] {
    if (params_.temperature == 0) {
      return static_cast<int32_t>(std::max<int64_t>(0, largest_of(logits).at));
    }
    const bool of_all = params_.min_p == 0 && params_.top_k == 0 && params_.top_p == 1;
    return of_all ? draw_of_all(logits, params_.temperature, uniform()) : draw(logits);
  };
  if (params_.logprobs < 0) {
    if (!plain) penalize(logits, prompt, generated);
    if (!allowed.empty()) keep_only(allowed, logits);
    return {.id = choose()};
  }
  const double log_sum = log_sum_exp(logits);
  SampledToken token{.top = most_likely(logits, log_sum, params_.logprobs)};
  const std::vector<float> raw(logits.begin(), logits.end());
  if (!plain) penalize(logits, prompt, generated);
  if (!allowed.empty()) keep_only(allowed, logits);
  token.id = choose();
  token.logprob = static_cast<float>(raw[token.id] - log_sum);
  return token;
}

void Sampler::penalize(std::span<float> logits, std::span<const int32_t> prompt,
                       std::span<const int32_t> generated) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    if (static_cast<size_t>(id) < logits.size()) logits[id] += bias;
  }
  std::unordered_map<int32_t, int> counts;
  for (int32_t id : generated) ++counts[id];
  std::unordered_set<int32_t> seen(prompt.begin(), prompt.end());
  for (const auto& [id, count] : counts) {
    seen.insert(id);
    logits[id] -= params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
  }
  if (params_.repetition_penalty == 1) return;
  for (int32_t id : seen) {
    float& logit = logits[id];
    if (logit == -kInfinity) continue;
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit = std::clamp(logit, -kLargest, kLargest);
  }
}

int32_t Sampler::draw(std::span<const float> logits) {
  const float top = largest_of(logits).value;
  // min-p first: a plain threshold on logits, which leaves few candidates to sort.
  const float floor =
      params_.min_p > 0 ? top + params_.temperature * std::log(params_.min_p) : -kInfinity;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= floor) candidates_.push_back({static_cast<int32_t>(i), logits[i]});
  }
  if (params_.top_k > 0 && params_.top_k < std::ssize(candidates_)) {
    const auto end = candidates_.begin() + params_.top_k;
    std::partial_sort(candidates_.begin(), end, candidates_.end(), more_likely);
    candidates_.erase(end, candidates_.end());
  } else if (params_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
  }
  BRAID_CHECK(!candidates_.empty(), "logits of which none is a number");
  double total = 0;
  for (TokenLogprob& c : candidates_) {
    c.logprob = std::exp((c.logprob - top) / params_.temperature);
    total += c.logprob;
  }
  size_t count = candidates_.size();
  if (params_.top_p < 1) {
    double sum = 0;
    for (count = 0; count < candidates_.size() && sum < params_.top_p * total; ++count) {
      sum += candidates_[count].logprob;
    }
    total = sum;
  }
  double left = uniform() * total;
  for (size_t i = 0; i < count; ++i) {
    left -= candidates_[i].logprob;
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[count - 1].id;
}

// SplitMix64: the same numbers on every machine, unlike the distributions of <random>.
double Sampler::uniform() {
  state_ += kRandomStep;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace braid
