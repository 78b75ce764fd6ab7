// Prompts with products divided over ranks that have whole weights, as `--sp auto` takes them:
// logits and tokens are one rank's, wherever the keys lie afterwards.
#include <gtest/gtest.h>

#include <tuple>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/thinning.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

constexpr double kTolerance = 1e-5;  // f32

// The cost that follows reading weights, so that divided weights are fastest wherever legal. A
// residual in parts saves launches, and adds a meeting.
enum class Slow : uint8_t { launches, meetings };

Profile slow_memory(Slow slow = Slow::launches) {
  Profile profile = load_profile("h200");
  profile.activations = DType::f32;
  profile.memory_bytes_per_second = profile.total_memory_bytes_per_second = 1e6;
  // Modes have more of either.
  (slow == Slow::launches ? profile.launch_seconds : profile.machine_link.latency_seconds) = 5e-3;
  profile.rates.clear();
  return profile;
}

class DividedPrompt : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_.emplace(GetParam() + "_divided_prompt");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
  }
  RunnerConfig config(int ranks, Slow slow = Slow::launches,
                      const char* schedule = "sequence_parallel") const {
    return {.tp = ranks,
            .sp = SequenceParallel{},
            .cache = kCache,
            .schedule = schedule,
            .profile = slow_memory(slow)};
  }
  // Earlier keys, experts and too few query heads are refused, and computed in another way.
  static void expect_taken_or_refused(const std::vector<std::string>& lines,
                                      std::string_view form = "",
                                      std::string_view whole = "sequence_parallel") {
    int prompts = 0, of_form = 0, taken = 0;
    for (const std::string& line : lines) {
      if (!line.starts_with("prompt of ")) continue;
      ++prompts;
      const auto has = [&](std::string_view text) { return line.find(text) < line.size(); };
      const bool refused = has(fmt::format("weights divided, {} refused: ", whole));
      EXPECT_NE(has(": weights divided"), refused) << line;
      taken += refused ? 0 : 1;
      of_form += has(fmt::format(": weights divided, {}", form)) && !refused ? 1 : 0;
      EXPECT_EQ(refused, !has("behind 0:") || has("experts have no") || has("query heads")) << line;
    }
    EXPECT_GT(prompts, 0);
    EXPECT_EQ(of_form > 0, taken > 0) << form;
  }

  static constexpr CacheShape kCache = {.pages = kPages,
                                        .page_size = kPageSize,
                                        .pages_per_sequence = kPages,
                                        .kv_dtype = DType::f32};
  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

// Prompts of every length about the ranks', and what follows them: chunks, answers, steps of
// several sequences, and other sequences on pages that were given back.
TEST_P(DividedPrompt, LogitsAreThoseOfOneRank) {
  Runner one(loaded_->model, {.cache = kCache});
  // In order: as of ranks that share a GPU.
  const char *beside = "sequence_parallel", *in_order = "sequential";
  for (const auto& [P, slow, schedule] : {std::tuple(2, Slow::launches, beside),
                                          {2, Slow::meetings, beside},
                                          {4, Slow::launches, beside},
                                          {2, Slow::meetings, in_order},
                                          {4, Slow::launches, in_order}}) {
    SCOPED_TRACE(fmt::format("{} ranks, slow {}, {}", P,
                             slow == Slow::launches ? "launches" : "meetings", schedule));
    Runner ranks(loaded_->model, config(P, slow, schedule));
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    for (int64_t n = P; n < 3 * P; ++n) {
      Sequence sequence{{7, 8}};
      for (int64_t tokens : {n, int64_t{1}, int64_t{5}}) {
        Batch batch(kPageSize);
        sequence.add(batch, tokens);
        expect_alike(ranks, one, batch, kTolerance);
      }
    }
    if (HasFatalFailure()) return;
    expect_taken_or_refused(ranks.explain(), slow == Slow::launches ? "token_sharded" : schedule,
                            schedule);
  }
}

TEST_P(DividedPrompt, GreedyTokensAreThoseOfOneRank) {
  for (int P : {2, 4}) {
    Generator generator(loaded_->model, loaded_->tokenizer,
                        {.tp = P,
                         .sp = SequenceParallel{},
                         .threads = 1,
                         .schedule = "sequence_parallel",
                         .profile = slow_memory()});
    for (const Case& c : load_golden(GetParam()).cases) {
      expect_greedy(generator, c, greedy_tolerance(loaded_->model));
      if (HasFatalFailure()) return;
    }
  }
}

// A rank's cache of its own keys has room for several whole sequences: rank 0 takes its part alone.
TEST_P(DividedPrompt, KeysThatStayApartGiveTheSame) {
  Runner one(loaded_->model, {.cache = kCache});
  for (int P : {2, 3}) {
    SCOPED_TRACE(fmt::format("{} ranks", P));
    RunnerConfig c = config(P);
    c.sp->apart = true;
    c.cache.pages_per_sequence = 4;
    Runner ranks(loaded_->model, c);
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    if (HasFatalFailure()) return;
    expect_taken_or_refused(ranks.explain());
  }
}

// Each rank thins the keys of its own heads, in the parts of all ranks; exact prompts stand beside.
TEST_P(DividedPrompt, ThinnedPromptsAreThoseOfOneRank) {
  if (each_layer_has_a_window(loaded_->model.config())) GTEST_SKIP() << "each layer has a window";
  if (loaded_->model.config().Hkv == 1) GTEST_SKIP() << "ranks would share the KV head";
  for (const auto& [P, importance, slow] : {std::tuple(2, Importance::own, Slow::launches),
                                            {2, Importance::own, Slow::meetings},
                                            {2, Importance::previous, Slow::launches},
                                            {2, Importance::probe, Slow::launches},
                                            {3, Importance::own, Slow::launches},
                                            {3, Importance::previous, Slow::meetings}}) {
    SCOPED_TRACE(fmt::format("{} ranks, importance {}, slow {}", P, static_cast<int>(importance),
                             static_cast<int>(slow)));
    if (loaded_->model.config().Hkv % P != 0) continue;  // ranks that share a KV head are refused
    RunnerConfig alone{.cache = kCache}, divided = config(P, slow);
    alone.thinning = {.keep = {0.3}, .groups = {P}, .importance = importance};
    divided.thinning = {.keep = {0.3}, .importance = importance};
    Runner one(loaded_->model, alone), ranks(loaded_->model, divided);
    for (const auto& [n, exact] :
         {std::pair(190, false), {190, true}, {97, false}, {61, false}, {2 * P - 1, false}}) {
      Sequence sequence;
      for (int32_t page = 1; page < kPages; ++page) sequence.pages.push_back(page * 5 % kPages);
      Batch batch(kPageSize);
      sequence.add(batch, n);
      batch.set_exact(exact);
      expect_alike(ranks, one, batch, kTolerance);
      const auto left_out = ranks.last_approximation(), wanted = one.last_approximation();
      ASSERT_EQ(left_out.has_value(), wanted.has_value()) << n;
      EXPECT_FALSE(exact && wanted);
      if (wanted) EXPECT_EQ(left_out->shares.pair_share(), wanted->shares.pair_share());
      for (int64_t more : {1, 5}) {
        Batch behind(kPageSize);
        sequence.add(behind, more);
        behind.set_exact(true);
        expect_alike(ranks, one, behind, kTolerance);
      }
      if (HasFatalFailure()) return;
    }
    int taken = 0, refused = 0;
    for (const std::string& line : ranks.explain()) {
      if (!line.starts_with("prompt of ")) continue;
      const auto has = [&](std::string_view text) { return line.find(text) < line.size(); };
      taken += has(" behind 0: weights divided") ? 1 : 0;
      refused += has("experts have no") ? 1 : 0;
    }
    EXPECT_NE(taken > 0, refused > 0) << fmt::format("{}", fmt::join(ranks.explain(), "\n"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DividedPrompt,
                         testing::ValuesIn(random_models_without({"kv_lora_rank"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
