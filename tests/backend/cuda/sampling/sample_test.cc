#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "backend/cuda/sampling/sample_case.h"

namespace braid::cuda::test {
namespace {

constexpr uint32_t kSeed = 20240607;

std::vector<SamplingConfig> configs(int32_t vocab, int32_t capacity) {
  return candidates({vocab, capacity}, sampling_device());
}

// Every way of choosing, over the parameters that a row can have.
std::vector<SamplingParams> all_params() {
  std::vector<SamplingParams> all = {
      {},
      {.temperature = 1},
      {.temperature = 0.7f, .top_k = 1},
      {.temperature = 1, .top_k = 40},
      {.temperature = 1, .top_k = 3000},
      {.temperature = 0.8f, .top_p = 0.95f},
      {.temperature = 1.5f, .top_p = 0.3f},
      {.temperature = 1, .min_p = 0.05f},
      {.temperature = 1, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f},
      {.temperature = 0.01f, .top_k = 7, .top_p = 0.99f},
      {.temperature = 1, .top_k = 5, .min_p = 0.9f},
      {.repetition_penalty = 1.3f, .frequency_penalty = 0.5f, .presence_penalty = 0.25f},
      {.temperature = 1, .top_k = 20, .repetition_penalty = 1.2f, .logprobs = 5},
      {.temperature = 1, .top_p = 0.9f, .frequency_penalty = 2, .logprobs = 0},
      {.logprobs = 20},
      {.presence_penalty = 40, .logprobs = 33}};
  for (size_t i = 0; i < all.size(); ++i) all[i].seed = 1000 * i + 17;
  return all;
}

TEST(Sample, TokensAreThoseOfTheCpuSampler) {
  REQUIRE_DEVICE();
  const auto params = all_params();
  int draws = 0;
  int boundary_cases = 0;
  for (const int32_t vocab : {1, 7, 33, 1000, 4097, 32003, 49152}) {
    for (const SamplingConfig& config : configs(vocab, 17)) {
      for (const std::string kind : {"normal", "peaked", "steps", "flat", "equal", "large"}) {
        if (vocab > 5000 && kind != "normal" && config.cluster != 8) continue;
        SCOPED_TRACE(fmt::format("V {} {} {} seed {}", vocab, kind, to_string(config), kSeed));
        SampleCase c(vocab, params, config, kSeed);
        for (int step = 0; step < 3; ++step) {
          c.fill_logits(kind);
          c.step();
          if (HasFatalFailure()) return;
        }
        draws += 3 * c.rows();
        boundary_cases += c.boundary_cases();
      }
    }
  }
  // Weights are rounded to f32 by two exponential functions: some 1e-7 of a boundary.
  RecordProperty("boundary_cases", boundary_cases);
  EXPECT_LE(boundary_cases, 1 + draws / 2000) << "of " << draws;
}

TEST(Sample, LargestVocabulary) {
  REQUIRE_DEVICE();
  const std::vector<SamplingParams> params = {
      {},
      {.temperature = 1, .top_k = 50, .top_p = 0.95f, .seed = 5},
      {.temperature = 1, .seed = 6, .logprobs = 3}};
  for (const int32_t vocab : {262144, 300001}) {
    for (const SamplingConfig& config : configs(vocab, 4)) {
      SCOPED_TRACE(fmt::format("V {} {}", vocab, to_string(config)));
      SampleCase c(vocab, params, config, kSeed);
      c.fill_logits("normal");
      for (int step = 0; step < 2; ++step) c.step();
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Sample, DrawsOfManyStepsAreThoseOfTheCpuSampler) {
  REQUIRE_DEVICE();
  std::vector<SamplingParams> params;
  for (uint64_t i = 0; i < 32; ++i) {
    params.push_back({.temperature = 1, .top_p = i % 2 ? 0.9f : 1.f, .seed = i});
  }
  SampleCase c(2000, params, choose({2000, 33}, sampling_device()), kSeed);
  c.fill_logits("normal");
  for (int step = 0; step < 100; ++step) {
    c.step();
    if (HasFatalFailure()) return;
  }
  EXPECT_LE(c.boundary_cases(), 2) << "of 3200";
}

TEST(Sample, EveryConfigurationGivesTheSameBits) {
  REQUIRE_DEVICE();
  const auto params = all_params();
  const int32_t vocab = 49153;
  struct Result {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    bool operator==(const Result&) const = default;
  };
  std::vector<Result> results;
  for (const SamplingConfig& config : configs(vocab, 17)) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      SampleCase c(vocab, params, config, kSeed);
      Result result;
      for (const std::string kind : {"normal", "flat", "steps"}) {
        c.fill_logits(kind);
        c.launch();
        check_cuda(cudaDeviceSynchronize(), "sampling");
        for (int32_t row = 0; row < c.rows(); ++row) {
          const SampleRecord& record = c.ring().record(c.steps_done(), row);
          result.ids.push_back(record.id);
          result.logprobs.push_back(record.logprob);
          for (const SampleTop& top : c.ring().tops(c.steps_done(), row)) {
            result.ids.push_back(top.id);
            result.logprobs.push_back(top.logprob);
          }
        }
        c.next_step();
      }
      results.push_back(result);
      EXPECT_EQ(results.back(), results.front()) << to_string(config) << ", run " << repeat;
    }
  }
}

TEST(Sample, TiesGoToTheLowerIdWhateverTheSignOfZero) {
  REQUIRE_DEVICE();
  for (const SamplingConfig& config : configs(5000, 2)) {
    SampleCase c(5000, {SamplingParams{}}, config, kSeed);
    std::fill(c.logits().begin(), c.logits().end(), -1.f);
    c.logits()[1234] = -0.f;
    c.logits()[4321] = 0.f;
    c.upload();
    c.launch();
    EXPECT_EQ(c.ids()[0], 1234) << to_string(config);
  }
}

TEST(Sample, NotFiniteLogitsAreReportedAndNotDrawn) {
  REQUIRE_DEVICE();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.f, 1.f}) {
    for (const SamplingConfig& config : configs(3000, 5)) {
      SCOPED_TRACE(fmt::format("{} temperature {}", to_string(config), temperature));
      const SamplingParams p{.temperature = temperature, .top_p = 0.99f};
      SampleCase c(3000, {p, p, p, p}, config, kSeed);
      auto& x = c.logits();
      std::fill(x.begin(), x.end(), 0.f);
      const int bad = temperature == 0 ? 77 : 2999;
      x[static_cast<size_t>(bad)] = NAN;                    // row 0
      x[3000 + 5] = inf;                                    // row 1
      std::fill(x.begin() + 6000, x.begin() + 9000, -inf);  // row 2
      std::fill(x.begin() + 9000, x.end(), -inf);           // row 3: all but one
      x[9000 + 42] = -50;
      c.upload();
      c.launch();
      const auto ids = c.ids();
      const auto status = [&](int row) { return c.ring().record(0, row).status; };
      EXPECT_EQ(status(0), kSampleNotFinite);
      EXPECT_NE(ids[0], bad);
      EXPECT_EQ(status(1), kSampleNotFinite);
      EXPECT_EQ(ids[1], 5);
      EXPECT_EQ(status(2), kSampleNoToken);
      EXPECT_EQ(ids[2], 0);
      EXPECT_EQ(status(3), kSampleOk);
      EXPECT_EQ(ids[3], 42);
    }
  }
}

// SampleCase gives slots in reverse order, of two rows here.
constexpr int kSlotOfRow0 = 1;

// Pinned masks for the slots of a case.
class Masks {
 public:
  explicit Masks(SampleCase& c) : words_((c.call().desc.vocab + 31) / 32) {
    const auto slots = static_cast<size_t>(c.call().desc.capacity);
    check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&bits_), slots * words_ * 4, 0), "mask");
    check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&ready_), slots * 8, 0), "mask");
    std::fill_n(bits_, slots * words_, 0u);
    std::fill_n(ready_, slots, 0u);
    c.call().mask = bits_;
    c.call().mask_ready = ready_;
  }
  ~Masks() {
    cudaFreeHost(bits_);
    cudaFreeHost(ready_);
  }
  void allow(int slot, int32_t id) { bits_[slot * words_ + id / 32] |= 1u << (id % 32); }
  void clear(int slot) { std::fill_n(bits_ + slot * words_, words_, 0u); }
  void publish(int slot, uint64_t step) {
    std::atomic_ref(ready_[slot]).store(step + 1, std::memory_order_release);
  }

 private:
  int words_;
  uint32_t* bits_ = nullptr;
  uint64_t* ready_ = nullptr;
};

void set_masked(SampleCase& c, const SamplingParams& p, uint32_t wait_us = 1'000'000) {
  SamplerParams device = to_device(p);
  device.mask_wait_us = wait_us;
  check_cuda(cudaMemcpy(const_cast<SamplerParams*>(c.call().params) + kSlotOfRow0, &device,
                        sizeof(device), cudaMemcpyHostToDevice),
             "masked parameters");
}

TEST(Sample, OnlyAllowedTokensAreDrawnAndTheMaskMayComeLate) {
  REQUIRE_DEVICE();
  const SamplingParams p{.temperature = 1, .top_k = 30, .seed = 3, .logprobs = 2};
  for (const SamplingConfig& config : configs(5000, 2)) {
    SCOPED_TRACE(to_string(config));
    SampleCase c(5000, {p}, config, kSeed);
    set_masked(c, p);
    Masks masks(c);
    Sampler sampler(p);
    for (uint64_t step = 0; step < 6; ++step) {
      c.fill_logits("normal");
      std::vector<float> allowed(5000, -std::numeric_limits<float>::infinity());
      c.launch();  // the mask is made while the kernel runs
      masks.clear(kSlotOfRow0);
      for (int i = 0; i < 100; ++i) {
        const auto id = static_cast<int32_t>(c.random()() % 5000);
        allowed[static_cast<size_t>(id)] = c.logits()[static_cast<size_t>(id)];
        masks.allow(kSlotOfRow0, id);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_FALSE(c.ring().ready(step, 0)) << "the sampler did not wait";
      masks.publish(kSlotOfRow0, step);
      ASSERT_TRUE(c.ring().wait(step, 0, std::chrono::seconds(5)));
      EXPECT_EQ(c.ring().record(step, 0).status, kSampleOk);
      EXPECT_EQ(c.ids()[0], sampler.sample(allowed, {}, {}).id);
      // Reported is the model's own distribution.
      std::vector<float> raw = c.logits();
      Sampler greedy({.logprobs = 2});
      EXPECT_EQ(c.ring().tops(step, 0)[0].id, greedy.sample(raw, {}, {}).top[0].id);
      c.next_step();
    }
    masks.clear(kSlotOfRow0);
    masks.publish(kSlotOfRow0, 6);
    c.launch();
    EXPECT_EQ(c.ids()[0], 0);
    EXPECT_EQ(c.ring().record(6, 0).status, kSampleNoToken);
  }
}

TEST(Sample, AMaskThatNeverComesIsReportedAtTheDeadline) {
  REQUIRE_DEVICE();
  const SamplingParams p{.temperature = 1, .seed = 11};
  for (const SamplingConfig& config : configs(40000, 2)) {
    SampleCase c(40000, {p}, config, kSeed);
    set_masked(c, p, 3000);
    Masks masks(c);
    c.fill_logits("normal");
    const auto start = std::chrono::steady_clock::now();
    c.launch();
    check_cuda(cudaDeviceSynchronize(), "sampling");
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3));
    EXPECT_EQ(c.ring().record(0, 0).status, kSampleMaskLate);
    std::vector<float> logits = c.logits();
    EXPECT_EQ(c.ids()[0], Sampler(p).sample(logits, {}, {}).id) << "drawn as if all were allowed";
  }
}

TEST(Sample, RowsWithoutASlotAreLeftOut) {
  REQUIRE_DEVICE();
  SampleCase c(1000, {SamplingParams{}, SamplingParams{}}, choose({1000, 3}, sampling_device()),
               kSeed);
  c.fill_logits("normal");
  const int32_t none = -1;
  check_cuda(cudaMemcpy(const_cast<int32_t*>(c.call().slots), &none, 4, cudaMemcpyHostToDevice),
             "slots");
  c.launch();
  EXPECT_EQ(c.ids()[0], poison<int32_t>());
  EXPECT_NE(c.ids()[1], poison<int32_t>());
  EXPECT_FALSE(c.ring().ready(0, 0));
  EXPECT_TRUE(c.ring().ready(0, 1));
}

}  // namespace
}  // namespace braid::cuda::test
