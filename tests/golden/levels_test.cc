// Level attention of whole models against tools/make_level_goldens.py, in f64, and against Hugging
// Face's eager attention: a mask for each layer and KV head, the first and the last layer dense.
#include <gtest/gtest.h>

#include <numeric>

#include "braid/engine/loaded_model.h"
#include "golden/support/expect_golden.h"
#include "golden/support/level_golden.h"
#include "golden/support/slow_machines.h"
#include "unit/io/expect_error.h"

namespace braid::golden {
namespace {

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages, .kv_dtype = DType::f32};

// Of 9 query heads in groups of 3.
constexpr int kRanksOfHeads = 3;

// Ranks that have all tokens, and divide weights.
RunnerConfig local(int ranks, std::vector<double> keep, std::vector<int> groups,
                   Importance importance) {
  return {.tp = ranks,
          .thinning = {.keep = std::move(keep),
                       .groups = std::move(groups),
                       .importance = importance,
                       .drop_queries = false},
          .cache = kCache};
}

// Ranks that divide tokens.
RunnerConfig config(int ranks, std::vector<double> keep, std::vector<int> groups,
                    Importance importance, bool drop_queries = false) {
  RunnerConfig config = local(ranks, std::move(keep), std::move(groups), importance);
  config.sp = SequenceParallel{.mode = SpMode::ring};
  config.thinning.drop_queries = drop_queries;
  config.schedule = "sequence_parallel";
  return config;
}

Rows logits_of(const Model& model, const RunnerConfig& config, const std::vector<int32_t>& prompt,
               size_t chunk = 0) {
  Runner runner(model, config);
  return prompt_logits(runner, prompt, chunk > 0 ? chunk : prompt.size());
}

// A rank with all tokens has the parts of the case's ranks, also beside another that has the other
// heads.
void expect_case(const Model& model, const LevelGolden& golden, const LevelGoldenCase& c,
                 std::initializer_list<int> tensor_ranks) {
  SCOPED_TRACE(c.options.dump());
  const auto option = [&](const char* key) -> const nlohmann::json& { return c.options.at(key); };
  const RunnerConfig ranks = config(option("ranks"), option("keep"), option("groups"),
                                    parse_importance(option("importance").get<std::string>()),
                                    c.options.value("drop_queries", false));
  expect_golden(golden.columns, c.logits, logits_of(model, ranks, c.logits.prompt));
  for (int tp : tensor_ranks) {
    SCOPED_TRACE(tp);
    RunnerConfig alone = local(tp, option("keep"), option("groups"), ranks.thinning.importance);
    alone.thinning.drop_queries = ranks.thinning.drop_queries;
    expect_golden(golden.columns, c.logits, logits_of(model, alone, c.logits.prompt));
  }
}

class Levels : public testing::Test {
 protected:
  void SetUp() override {
    golden_.write(folder_.path());
    loaded_.emplace(folder_.path().string());
  }
  Rows logits(const RunnerConfig& config, const std::vector<int32_t>& prompt,
              size_t chunk = 0) const {
    return logits_of(loaded_->model, config, prompt, chunk);
  }
  // Random tokens.
  std::vector<int32_t> tokens(size_t n) const {
    std::vector<int32_t> prompt(golden_.cases[1].logits.prompt);
    while (prompt.size() < n) prompt.push_back((prompt[prompt.size() - 99] * 5 + 1) % 250);
    prompt.resize(n);
    return prompt;
  }

  const LevelGolden golden_ = load_level_golden();
  const Folder folder_{"levels"};
  std::optional<LoadedModel> loaded_;
};

TEST_F(Levels, LogitsAreThoseOfTheMasks) {
  for (const LevelGoldenCase& c : golden_.cases) {
    expect_case(loaded_->model, golden_, c, {1, kRanksOfHeads});
  }
}

// Queries with biases, norms or other rotations, experts, one KV head.
TEST(LevelFamilies, LogitsAreThoseOfEagerAttentionWithTheMasks) {
  for (const LevelGolden& golden : load_eager_level_goldens()) {
    SCOPED_TRACE(golden.model);
    const Folder folder("level_families_" + golden.model);
    golden.write(folder.path());
    const Model model(folder.path().string());
    for (const LevelGoldenCase& c : golden.cases) expect_case(model, golden, c, {1});
  }
}

// In steps of any size ranks with all tokens compute what a ring computes: earlier steps' keys are
// read whole, steps with fewer tokens than ranks are exact. All keys stay in the cache.
TEST_F(Levels, RanksWithAllTokensComputeWhatARingDoes) {
  for (const size_t n : {size_t{64}, size_t{331}}) {
    const std::vector<int32_t> prompt = tokens(n);
    for (const size_t chunk : {n, size_t{160}, size_t{100}, size_t{33}}) {
      for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
        SCOPED_TRACE(fmt::format("{} tokens by {}, {}", n, chunk, to_string(importance)));
        const Rows ring = logits(config(4, {0.6, 0.3}, {2, 4}, importance), prompt, chunk);
        for (int tp : {1, kRanksOfHeads}) {
          const Rows alone = logits(local(tp, {0.6, 0.3}, {2, 4}, importance), prompt, chunk);
          ASSERT_EQ(alone.size(), ring.size());
          for (size_t i = 0; i < n; ++i) {
            ASSERT_LT(relative_distance(alone[i], ring[i]), 1e-4) << "tp " << tp << ", row " << i;
          }
        }
      }
    }
  }
}

// Two of four ranks compute what all four do, where lengths divide. `--sp auto` computes what a
// mode named for the ranks of its choice does, here those of one machine, and exact batches beside.
TEST_F(Levels, FewerRanksAndChosenOnesComputeWhatARingDoes) {
  const std::vector<int32_t> prompt = tokens(320);
  const auto expect_close = [&](const Rows& got, const Rows& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_LT(relative_distance(got[i], want[i]), 1e-4) << "row " << i;
    }
  };
  for (const size_t chunk : {size_t{320}, size_t{160}}) {
    for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
      SCOPED_TRACE(fmt::format("by {}, {}", chunk, to_string(importance)));
      const Rows ring = logits(config(4, {0.6, 0.3}, {2, 4}, importance), prompt, chunk);
      RunnerConfig two = config(2, {0.6, 0.3}, {2, 4}, importance);
      expect_close(logits(two, prompt, chunk), ring);
      RunnerConfig chosen = config(4, {0.6, 0.3}, {2, 4}, importance);
      chosen.sp->mode = {};
      for (const int machines : {1, 2}) {
        SCOPED_TRACE(fmt::format("chosen on {} machines", machines));
        chosen.links.machines = machines;
        chosen.profile = machines == 2 ? slow_machines(DType::f32) : load_profile("h200");
        chosen.profile->activations = DType::f32;
        Runner runner(loaded_->model, chosen);
        expect_close(prompt_logits(runner, prompt, chunk), ring);
        ASSERT_TRUE(runner.approximation());
        if (machines == 2) expect_two_ranks(runner.explain());
      }
    }
  }
}

// A batch that is exact reads all keys of all ranks, beside prompts with thinned keys.
TEST_F(Levels, ExactBatchesAreDense) {
  const std::vector<int32_t> prompt = tokens(331);
  const auto by_chunks = [&](Runner& runner, bool exact) {
    std::vector<int32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    Rows rows;
    for (size_t begin = 0; begin < prompt.size(); begin += 200) {
      const size_t n = std::min<size_t>(200, prompt.size() - begin);
      Batch batch(kPageSize);
      batch.add(std::span(prompt).subspan(begin, n), static_cast<int64_t>(begin), pages,
                static_cast<int64_t>(n));
      batch.set_exact(exact);
      runner.step(batch);
      for (size_t i = 0; i < n; ++i) {
        const float* row = runner.logits().row_as<float>(static_cast<int64_t>(i));
        rows.emplace_back(row, row + loaded_->model.config().V);
      }
    }
    return rows;
  };
  Runner one(loaded_->model, {.cache = kCache});
  const Rows dense = by_chunks(one, false);
  RunnerConfig chosen = config(4, {0.5}, {}, Importance::own);
  chosen.sp->mode = {};
  chosen.profile = slow_machines(DType::f32);
  for (const RunnerConfig& ranks :
       {config(4, {0.5}, {}, Importance::own), chosen, local(1, {0.5}, {4}, Importance::own)}) {
    Runner runner(loaded_->model, ranks);
    const Rows exact = by_chunks(runner, true);
    EXPECT_FALSE(runner.approximation());
    const Rows thinned = by_chunks(runner, false), again = by_chunks(runner, true);
    EXPECT_TRUE(runner.approximation());
    for (size_t i = 0; i < dense.size(); ++i) {
      ASSERT_LT(relative_distance(exact[i], dense[i]), 1e-5) << "row " << i;
      ASSERT_LT(relative_distance(again[i], dense[i]), 1e-5) << "row " << i;
    }
    EXPECT_GT(relative_distance(thinned.back(), dense.back()), 1e-3);
  }
}

TEST_F(Levels, RanksWithAllTokensAndAllKeysAreDense) {
  for (const size_t n : {size_t{3}, size_t{16}, size_t{331}}) {
    const std::vector<int32_t> prompt = tokens(n);
    for (const size_t chunk : {n, size_t{100}}) {
      const Rows dense = logits({.cache = kCache}, prompt, chunk);
      for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
        for (int tp : {1, kRanksOfHeads}) {
          const Rows all = logits(local(tp, {1}, {}, importance), prompt, chunk);
          for (size_t i = 0; i < n; ++i) {
            ASSERT_LT(relative_distance(all[i], dense[i]), 1e-5)
                << n << " tokens by " << chunk << ", " << to_string(importance) << ", row " << i;
          }
        }
      }
    }
  }
}

// Equal lengths have equal cuts. With `own` tokens are computed as if nothing followed their half,
// to the bit; with the other importances later queries choose their keys.
TEST_F(Levels, OnlyOwnLeavesAPrefixAsItIs) {
  constexpr size_t kTokens = 448;  // parts of 56: 28 keys are kept, 16 are protected
  const std::vector<int32_t> prompt = tokens(kTokens);
  std::vector<int32_t> other = prompt;
  for (size_t i = kTokens / 2; i < kTokens; ++i) other[i] = (other[i] * 7 + 3) % 250;
  for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
    SCOPED_TRACE(to_string(importance));
    for (const RunnerConfig& ranks :
         {config(4, {0.5}, {}, importance), local(1, {0.5}, {4}, importance)}) {
      const Rows one = logits(ranks, prompt), two = logits(ranks, other);
      const bool same = std::equal(one.begin(), one.begin() + kTokens / 2, two.begin());
      EXPECT_EQ(same, importance == Importance::own);
      EXPECT_NE(one.back(), two.back());
    }
  }
}

// A prefix of 8 parts is computed alone, or as the first half of a prompt of 16 parts: equal cuts.
// Its tokens' logits, and what dense steps behind the prefix read from keys and values of all
// layers, hang on the continuation where it chooses the prefix' keys.
TEST_F(Levels, OnlyOwnComputesAPrefixAsWithoutItsContinuation) {
  constexpr size_t kPart = 56, kPrefix = 8 * kPart;  // 28 keys are kept, 16 are protected
  const std::vector<int32_t> both = tokens(2 * kPrefix);
  const std::vector<int32_t> prefix(both.begin(), both.begin() + kPrefix);
  std::vector<int32_t> pages;
  KvPages(kPages, kPageSize).reserve(pages, kPages * kPageSize);
  const auto computed = [&](const RunnerConfig& config, const std::vector<int32_t>& prompt) {
    Runner runner(loaded_->model, config);
    Batch batch(kPageSize);
    batch.add(prompt, 0, pages, std::ssize(prompt));
    Rows rows;
    append_rows(runner.run(batch), rows);
    rows.resize(kPrefix);
    for (const size_t keys : {kPrefix, size_t{400}, size_t{57}, size_t{1}}) {
      batch.clear();
      batch.add(std::vector<int32_t>{7}, static_cast<int64_t>(keys), pages, 1);
      append_rows(runner.run(batch), rows);
    }
    return rows;
  };
  for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
    for (const bool ring : {true, false}) {
      SCOPED_TRACE(fmt::format("{} by {}", ring ? "ranks" : "a rank alone", to_string(importance)));
      const auto over = [&](int ranks) {
        return ring ? config(ranks, {0.5}, {}, importance) : local(1, {0.5}, {ranks}, importance);
      };
      const Rows alone = computed(over(4), prefix), half = computed(over(8), both);
      ASSERT_EQ(half.size(), alone.size());
      double furthest = 0;
      for (size_t i = 0; i < alone.size(); ++i) {
        furthest = std::max(furthest, relative_distance(half[i], alone[i]));
      }
      // Ranks add the states of other numbers of ranks; a rank alone gives the same bits.
      if (importance == Importance::own) {
        EXPECT_LE(furthest, ring ? 1e-5 : 0);
      } else {
        EXPECT_GT(furthest, 1e-2);
      }
    }
  }
}

TEST(LevelFamilies, LatentAttentionIsRefused) {
  const Folder folder("levels_of_latents");
  write_hf_folder(load_random_model("deepseek_v2_lite"), folder.path());
  const Model model(folder.path().string());
  const auto open = [&](const RunnerConfig& config) { Runner(model, config); };
  for (int tp : {1, 2}) {
    test::expect_error(ErrorCode::kUnsupported,
                       {"--keep: latent attention reads a cache of all heads' latents"},
                       [&] { open(local(tp, {0.5}, {4}, Importance::own)); });
  }
}

// Shares of pairs and keys are counted over all layers and steps; equal shares of 1 are exact.
TEST_F(Levels, SayWhatWasLeftOut) {
  const std::vector<int32_t>& prompt = golden_.cases[0].logits.prompt;
  for (const bool alone : {false, true}) {
    SCOPED_TRACE(alone ? "a rank alone" : "a ring");
    const auto ranks = [&](double keep) {
      return alone ? local(1, {keep}, {2}, Importance::own)
                   : config(2, {keep}, {}, Importance::own);
    };
    Runner half(loaded_->model, ranks(0.5));
    EXPECT_FALSE(half.approximation()) << "before any prompt";
    prompt_logits(half, {7}, 1);
    EXPECT_FALSE(half.approximation()) << "fewer tokens than ranks";
    prompt_logits(half, prompt, prompt.size());
    ASSERT_TRUE(half.approximation());
    // Of 192 tokens in four parts of 48, three of five layers read half of each earlier part.
    constexpr double kAll = 192 * 193 / 2, kFar = 6 * 48 * 48;
    EXPECT_NEAR(half.approximation()->shares.pair_share(), 1 - 3 * kFar / 2 / (5 * kAll), 1e-12);
    EXPECT_NEAR(half.approximation()->shares.key_share(), 0.7, 1e-12);
    Runner all(loaded_->model, ranks(1));
    prompt_logits(all, prompt, prompt.size());
    EXPECT_FALSE(all.approximation());
  }
}

}  // namespace
}  // namespace braid::golden
