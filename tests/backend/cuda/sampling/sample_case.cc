#include "backend/cuda/sampling/sample_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace braid::cuda::test {
namespace {

constexpr int kRing = 3;

// Where u lies between the boundaries of tokens, in f64 and with nothing in common with either
// sampler: whether `id` is right if every weight and every cut may be off by a relative `slack`.
bool possible(const std::vector<float>& logits, const SamplingParams& p, double u, int32_t id,
              double slack) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const auto logit = [&](int32_t i) { return logits[static_cast<size_t>(i)]; };
  const float top = *std::max_element(logits.begin(), logits.end());
  const float floor = top + p.temperature * std::log(p.min_p);
  std::erase_if(order, [&](int32_t i) { return p.min_p > 0 && logit(i) < floor; });
  const bool cut = p.top_k > 0 && p.top_k < std::ssize(order);
  if (cut || p.top_p < 1) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
    if (cut) order.resize(static_cast<size_t>(p.top_k));
  }
  std::vector<double> through;
  double total = 0;
  for (int32_t i : order) {
    through.push_back(total += std::exp((static_cast<double>(logit(i)) - top) / p.temperature));
  }
  const auto at = std::find(order.begin(), order.end(), id) - order.begin();
  if (at == std::ssize(order)) return false;
  const double high = through[static_cast<size_t>(at)];
  const double low = at > 0 ? through[static_cast<size_t>(at - 1)] : 0;
  const auto allows = [&](double sum) {  // for a kept total
    return low <= (u + slack) * sum && (u - slack) * sum <= high;
  };
  if (p.top_p >= 1) return allows(total);
  for (const double sign : {-1., 0., 1.}) {
    const double want = p.top_p * total * (1 + sign * slack);
    const auto kept = std::lower_bound(through.begin(), through.end(), want);
    if (allows(kept == through.end() ? total : *kept)) return true;
  }
  return false;
}

double uniform(uint64_t seed, uint64_t draws) {  // SplitMix64's number after `draws` others
  uint64_t z = seed + (draws + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace

SamplerParams to_device(const SamplingParams& p) {
  return {.temperature = p.temperature,
          .top_k = p.top_k,
          .top_p = p.top_p,
          .log_min_p = std::log(p.min_p),
          .repetition_penalty = p.repetition_penalty,
          .frequency_penalty = p.frequency_penalty,
          .presence_penalty = p.presence_penalty,
          .logprobs = p.logprobs};
}

SampleCase::SampleCase(int32_t vocab, const std::vector<SamplingParams>& params,
                       const SamplingConfig& config, uint32_t seed, int32_t max_logprobs)
    : vocab_(vocab),
      rows_(static_cast<int32_t>(params.size())),
      params_(params),
      config_(config),
      random_(seed),
      logits_(static_cast<size_t>(rows_) * static_cast<size_t>(vocab)),
      prompts_(params.size()),
      generated_(params.size()),
      logits_d_(static_cast<size_t>(rows_ + 1) * static_cast<size_t>(vocab + 3)),
      rows_d_(std::vector<int64_t>{rows_}),
      slots_d_(static_cast<size_t>(rows_ + 1)),
      params_d_(params.size() + 1),
      states_d_(params.size() + 1),
      counts_d_(static_cast<size_t>(rows_ + 1) * static_cast<size_t>(vocab)),
      step_d_(std::vector<uint64_t>{0}),
      token_ids_d_(static_cast<size_t>(rows_ + 1)),
      workspace_d_(workspace_bytes({vocab, rows_ + 1}, {}) / sizeof(float)) {
  const SamplingDesc desc{vocab, rows_ + 1};
  std::vector<int32_t> slots;
  std::vector<SamplerParams> device_params(params.size() + 1);
  std::vector<SamplerState> states(params.size() + 1);
  for (int32_t row = 0; row <= rows_; ++row) slots.push_back(rows_ - row);
  for (int32_t row = 0; row < rows_; ++row) {
    const auto r = static_cast<size_t>(row);
    const auto slot = static_cast<size_t>(slots[r]);
    samplers_.emplace_back(params[r]);
    device_params[slot] = to_device(params[r]);
    states[slot].random = params[r].seed;
    for (int i = 0; i < 20; ++i) {
      prompts_[r].push_back(static_cast<int32_t>(random_() % static_cast<uint32_t>(vocab)));
    }
    uint32_t* counts = counts_d_.data() + slot * static_cast<size_t>(vocab);
    const DeviceArray<int32_t> prompt(prompts_[r]);
    clear_counts(counts, vocab, {});
    count_tokens({.counts = counts, .vocab = vocab, .ids = prompt.data(), .n = 20}, {});
    check_cuda(cudaDeviceSynchronize(), "counting the prompt");
  }
  slots_d_.set(slots);
  params_d_.set(device_params);
  states_d_.set(states);
  call_ = {.desc = desc,
           .logits = logits_d_.data(),
           .logits_stride = vocab + 3,
           .rows = rows_d_.data(),
           .slots = slots_d_.data(),
           .params = params_d_.data(),
           .states = states_d_.data(),
           .counts = counts_d_.data(),
           .step = step_d_.data(),
           .token_ids = token_ids_d_.data(),
           .workspace = workspace_d_.data()};
  ring_ = std::make_unique<SampleRing>(kRing, desc.capacity, max_logprobs);
  ring_->attach(call_);
  prepare_sampling(desc, config);
}

void SampleCase::fill_logits(const std::string& kind) {
  std::normal_distribution<float> normal;
  for (float& x : logits_) {
    const float z = normal(random_);
    x = kind == "normal"   ? 3 * z
        : kind == "flat"   ? 5 + 1e-3f * z
        : kind == "equal"  ? 0.25f
        : kind == "steps"  ? std::round(2 * z) / 2
        : kind == "large"  ? 1e4f * z
        : kind == "peaked" ? (random_() % 997 == 0 ? 15 + z : z)
                           : NAN;
  }
  upload();
}

void SampleCase::upload() {
  const auto v = static_cast<size_t>(vocab_);
  for (size_t r = 0; r < static_cast<size_t>(rows_); ++r) {
    logits_d_.set(std::span(logits_).subspan(r * v, v), r * (v + 3));
  }
}

void SampleCase::launch(LaunchContext context) {
  sample(call_, config_, context);
}

void SampleCase::next_step() {
  step_d_.set(std::vector<uint64_t>{++step_});
}

std::vector<int32_t> SampleCase::ids() const {
  return token_ids_d_.get();
}

void SampleCase::step() {
  launch();
  check_cuda(cudaDeviceSynchronize(), "sampling");
  const std::vector<int32_t> ids = token_ids_d_.get();
  ASSERT_EQ(ids.back(), poison<int32_t>()) << "a row that is not live was written";
  ASSERT_FALSE(ring_->ready(step_, rows_)) << "a row that is not live was reported";
  for (int32_t row = 0; row < rows_; ++row) {
    SCOPED_TRACE(fmt::format("row {} of step {}", row, step_));
    check_row(row, ids[static_cast<size_t>(row)]);
  }
  next_step();
}

void SampleCase::check_row(int32_t row, int32_t id) {
  const auto r = static_cast<size_t>(row);
  const auto v = static_cast<size_t>(vocab_);
  const SamplingParams& p = params_[r];
  ASSERT_TRUE(ring_->ready(step_, row));
  const SampleRecord& record = ring_->record(step_, row);
  ASSERT_EQ(record.id, id) << "the host's copy differs";
  ASSERT_EQ(record.status, 0);
  std::vector<float> values(logits_.begin() + static_cast<ptrdiff_t>(r * v),
                            logits_.begin() + static_cast<ptrdiff_t>((r + 1) * v));
  const std::vector<float> raw = values;
  const SampledToken want = samplers_[r].sample(values, prompts_[r], generated_[r]);
  if (id != want.id) {
    ASSERT_GT(p.temperature, 0) << "greedy is exact: " << id << " for " << want.id;
    const double u = uniform(p.seed, generated_[r].size());
    ASSERT_TRUE(possible(values, p, u, id, 1e-6)) << id << " for " << want.id << ", u " << u;
    ++boundary_cases_;
  }
  generated_[r].push_back(id);
  if (p.logprobs < 0) return;
  const double log_sum = log_sum_exp(raw);
  EXPECT_NEAR(record.logprob, raw[static_cast<size_t>(id)] - log_sum,
              1e-6 * (1 + std::abs(record.logprob)));
  const std::span<const SampleTop> tops = ring_->tops(step_, row);
  ASSERT_EQ(std::ssize(tops), std::min({p.logprobs, call_.max_logprobs, vocab_}));
  // Exactly the largest logits, ties by the lower id.
  std::vector<int32_t> order(v);
  for (size_t i = 0; i < v; ++i) order[i] = static_cast<int32_t>(i);
  std::partial_sort(order.begin(), order.begin() + std::ssize(tops), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = raw[static_cast<size_t>(a)];
                      const float y = raw[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < tops.size(); ++i) {
    ASSERT_EQ(tops[i].id, order[i]) << "alternative " << i;
    EXPECT_NEAR(tops[i].logprob, raw[static_cast<size_t>(order[i])] - log_sum,
                1e-6 * (1 + std::abs(tops[i].logprob)));
  }
}

}  // namespace braid::cuda::test
