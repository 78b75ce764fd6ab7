// Ranks that divide a sequence's tokens, each with whole weights: every family in every mode gives
// what one rank gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

constexpr double kF32Tolerance = 1e-4;  // as logits_test.cc has it

struct Division {
  SpMode mode;
  int machines;
  int devices;
  SpRequest degrees;
  std::string schedule = "sequence_parallel";
};

// Every mode, and meshes in which torus, ulysses and ring groups all have several ranks.
const std::vector<Division> kDivisions = {
    {SpMode::ring, 1, 2, {}},
    {SpMode::ring, 1, 3, {}, "sequential"},
    {SpMode::ulysses, 1, 2, {}},
    {SpMode::usp, 2, 2, {.ulysses = 2}},
    {SpMode::tas, 2, 2, {.ulysses = 2}},
    {SpMode::torus, 2, 1, {.torus = 2}},
    {SpMode::torus, 2, 2, {.torus = 2, .ring = 2}},
    {SpMode::torus, 2, 2, {.torus = 2, .ulysses = 2}},
};

std::string to_string(const Division& d) {
  return fmt::format("{} on {}x{}, {}", braid::to_string(d.mode), d.machines, d.devices,
                     d.schedule);
}

RunnerConfig config_of(const CacheShape& cache, const Division& d) {
  return {.tp = d.machines * d.devices,
          .sp = SequenceParallel{d.mode, d.degrees},
          .cache = cache,
          .schedule = d.schedule,
          .links = {.machines = d.machines}};
}

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages, .kv_dtype = DType::f32};

std::vector<float> flat(const Rows& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

class SequenceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_.emplace(GetParam() + "_sequence");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
  }
  bool legal(const Division& d) const {
    return d.degrees.torus.value_or(1) * d.degrees.ulysses.value_or(1) <=
           loaded_->model.config().Hq;
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

// In one step, and in chunks: keys stay where they were computed, and are attended to from there. A
// chunk of 7 leaves tails shorter than the ranks, which rank 0 computes alone.
TEST_P(SequenceTest, LogitsAreThoseOfOneRank) {
  const Golden golden = load_golden(GetParam());
  Runner one(loaded_->model, {.cache = kCache});
  int64_t divided = 0;
  for (const Division& d : kDivisions) {
    if (!legal(d)) continue;
    SCOPED_TRACE(to_string(d));
    Runner ranks(loaded_->model, config_of(kCache, d));
    for (const Case& c : golden.cases) {
      for (size_t chunk : {512, 7}) {
        const std::vector<float> got = flat(prompt_logits(ranks, c.prompt, chunk));
        const std::vector<float> want = flat(prompt_logits(one, c.prompt, chunk));
        ASSERT_EQ(got.size(), want.size());
        EXPECT_LT(relative_distance(got, want), kF32Tolerance)
            << c.prompt.size() << " tokens in chunks of " << chunk;
      }
    }
    for (const std::string& line : ranks.explain()) {
      divided += line.find(fmt::format("over {} ranks", d.machines * d.devices)) < line.size();
    }
  }
  EXPECT_GT(divided, 3 * std::ssize(kDivisions)) << "too few steps were divided";
}

// A prompt over the ranks, its keys to rank 0, and token by token from there.
TEST_P(SequenceTest, GreedyTokensAreThoseOfOneRank) {
  for (const Division& d : kDivisions) {
    if (!legal(d)) continue;
    SCOPED_TRACE(to_string(d));
    Generator generator(loaded_->model, loaded_->tokenizer,
                        {.tp = d.machines * d.devices,
                         .sp = SequenceParallel{d.mode, d.degrees},
                         .threads = 1,
                         .schedule = d.schedule,
                         .links = {.machines = d.machines}});
    for (const Case& c : load_golden(GetParam()).cases) {
      expect_greedy(generator, c, greedy_tolerance(loaded_->model));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SequenceTest,
                         testing::ValuesIn(random_models_without({"kv_lora_rank"})),
                         [](const auto& info) { return info.param; });

// Every length about the number of ranks, with links that are late, and an answer from each.
TEST(SequenceLengths, ShortPromptsAndAnswers) {
  const Folder folder("sequence_lengths");
  write_hf_folder(load_random_model("llama3_gqa"), folder.path());
  const LoadedModel loaded(folder.path().string());
  const CacheShape cache = kCache;
  Runner one(loaded.model, {.cache = cache});
  for (const Division& d : {Division{SpMode::ring, 1, 4, {}}, Division{SpMode::ulysses, 1, 4, {}},
                            Division{SpMode::torus, 2, 2, {.torus = 2, .ulysses = 2}}}) {
    SCOPED_TRACE(to_string(d));
    RunnerConfig config = config_of(cache, d);
    config.links.jitter = fabric::Jitter{.seed = 7, .max_delay_seconds = 2e-4};
    Runner ranks(loaded.model, config);
    for (int32_t n = 1; n <= 9; ++n) {
      const auto logits = [&](Runner& runner) {
        Batch batch(kPageSize);
        std::vector<int32_t> prompt;
        for (int32_t i = 0; i < n; ++i) prompt.push_back((i * 37 + n) % 100);
        const std::vector<int32_t> pages{5, 2, 9};
        batch.add(prompt, 0, pages, n);
        Rows rows;
        append_rows(runner.run(batch), rows);
        // Two tokens, then four, which go over the ranks again, then one.
        int64_t cached = n;
        for (int64_t more : {2, 4, 1}) {
          batch.clear();
          batch.add(std::vector<int32_t>(static_cast<size_t>(more), 11), cached, pages, more);
          append_rows(runner.run(batch), rows);
          cached += more;
        }
        return flat(rows);
      };
      EXPECT_LT(relative_distance(logits(ranks), logits(one)), kF32Tolerance) << n << " tokens";
    }
  }
}

// `auto` prices ranks, modes and strategies by a profile for each prompt; what it takes is as
// exact. Where kernels compute a million times slower all ranks pay for every prompt.
TEST(SequenceAuto, TakesWhatALengthAsksFor) {
  const Folder folder("sequence_auto");
  write_hf_folder(load_random_model("smollm2"), folder.path());
  const LoadedModel loaded(folder.path().string());
  Runner one(loaded.model, {.cache = kCache});
  const Profile fast = load_profile("a100");
  Profile slow = fast;
  for (Rate& rate : slow.rates) {
    for (Rate::Point& point : rate.points) point.per_second *= 1e-6;
  }
  for (const Division& d :
       {Division{SpMode::ring, 1, 3, {}}, Division{SpMode::ring, 2, 2, {.ulysses = 2}, "auto"}}) {
    for (bool divides : {false, true}) {
      SCOPED_TRACE(divides ? "slow devices" : "fast devices");
      RunnerConfig config = config_of(kCache, d);
      config.sp->mode.reset();
      config.profile = divides ? slow : fast;
      Runner ranks(loaded.model, config);
      join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kF32Tolerance); });
      if (HasFatalFailure()) return;
      int alone = 0, divided = 0;
      for (const std::string& line : ranks.explain()) {
        alone += line.find("tokens over 1 ranks") < line.size();
        divided += line.find(fmt::format("tokens over {} ranks", config.tp)) < line.size();
      }
      EXPECT_EQ(alone > 0, !divides);
      EXPECT_GT(divides ? divided : alone, 0);
    }
  }
}

TEST(SequenceErrors, SayWhatIsNotLegal) {
  const Folder folder("sequence_errors");
  write_hf_folder(load_random_model("llama3_gqa"), folder.path());
  const LoadedModel loaded(folder.path().string());
  const auto refusal = [&](const Division& d) -> std::string {
    try {
      Runner(loaded.model, config_of(kCache, d));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({SpMode::ulysses, 1, 16, {}}).find("only 6 heads"), std::string::npos)
      << refusal({SpMode::ulysses, 1, 16, {}});
  EXPECT_NE(refusal({SpMode::ring, 1, 2, {.ulysses = 2}}).find("2 ranks"), std::string::npos);
  EXPECT_NE(refusal({SpMode::torus, 1, 2, {.torus = 3}}), "");
  RunnerConfig unpriced = config_of(kCache, {SpMode::ring, 1, 2, {}});
  unpriced.sp->mode.reset();
  EXPECT_THROW(Runner(loaded.model, unpriced), Error) << "auto without a profile";
}

}  // namespace
}  // namespace braid::golden
