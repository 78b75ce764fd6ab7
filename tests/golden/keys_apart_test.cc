// Ranks that hold keys for good: each has room for its own part, and queries go to the keys. What
// they compute is what one rank computes, wherever the keys lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/sequence_ranks.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

constexpr double kTolerance = 1e-4;  // as logits_test.cc has it, f32

CacheShape cache_of(int64_t pages) {
  return {
      .pages = pages, .page_size = kPageSize, .pages_per_sequence = pages, .kv_dtype = DType::f32};
}

RunnerConfig ring(int ranks, const CacheShape& cache, const char* schedule = "sequential") {
  return {
      .tp = ranks, .sp = SequenceParallel{SpMode::ring, {}}, .cache = cache, .schedule = schedule};
}

class KeysApart : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_.emplace(fmt::format("{}_keys_apart", GetParam()));
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

TEST_P(KeysApart, SequencesJoinAndLeave) {
  Runner one(loaded_->model, {.cache = cache_of(kPages)});
  for (int P : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(fmt::format("{} ranks", P));
    Runner ranks(loaded_->model, ring(P, cache_of(kPages), P == 3 ? "overlap" : "sequential"));
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    if (HasFatalFailure()) return;
  }
}

// Few new tokens behind many keys: queries and their states are fewer bytes than keys.
TEST_P(KeysApart, FewTokensGoToTheKeys) {
  Runner one(loaded_->model, {.cache = cache_of(kPages)});
  for (SpMode mode : {SpMode::ring, SpMode::ulysses}) {
    for (int P : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(fmt::format("{} of {} ranks", to_string(mode), P));
      if (mode == SpMode::ulysses && P > loaded_->model.config().Hq) continue;
      RunnerConfig config = ring(P, cache_of(kPages), P == 3 ? "overlap" : "sequence_parallel");
      config.sp->mode = mode;
      Runner ranks(loaded_->model, config);
      turns_behind_a_prefix(
          [&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
      if (HasFatalFailure()) return;
      int queries = 0, keys = 0;
      for (const std::string& line : ranks.explain()) {
        queries += line.find("queries move") < line.size();
        keys += line.find("keys move") < line.size();
      }
      if (P == 1) {
        EXPECT_EQ(queries + keys, 0);
      } else {
        EXPECT_GT(queries, 1);
      }
    }
  }
}

// Turns of a conversation: the text is one rank's.
TEST_P(KeysApart, TurnsGiveTheTextOfOneRank) {
  std::vector<int32_t> pages(16);
  std::iota(pages.begin(), pages.end(), 3);
  const auto text = [&](Runner& runner) {
    std::vector<int32_t> all;
    const auto feed = [&](std::vector<int32_t> tokens, int64_t cached) {
      Batch batch(kPageSize);
      batch.add(tokens, cached, pages, 1);
      const TensorView logits = runner.run(batch);
      const float* row = logits.row_as<float>(0);
      return static_cast<int32_t>(std::max_element(row, row + logits.cols()) - row);
    };
    for (int64_t turn : {91, 12, 5, 33}) {
      std::vector<int32_t> prompt = ids(turn, static_cast<int32_t>(turn));
      for (int i = 0; i < 7; ++i) {
        const int64_t cached = std::ssize(all);
        all.insert(all.end(), prompt.begin(), prompt.end());
        prompt = {feed(prompt, cached)};
      }
    }
    return all;
  };
  Runner one(loaded_->model, {.cache = cache_of(kPages)});
  const std::vector<int32_t> want = text(one);
  for (int P : {2, 3, 4}) {
    Runner ranks(loaded_->model, ring(P, cache_of(kPages)));
    EXPECT_EQ(text(ranks), want) << P << " ranks";
  }
}

// Level attention that keeps all keys, behind cached ones too; a smaller share gives other logits.
TEST_P(KeysApart, LevelsThatKeepAllAreExact) {
  Runner one(loaded_->model, {.cache = cache_of(kPages)});
  for (int P : {2, 3}) {
    RunnerConfig config = ring(P, cache_of(kPages));
    config.thinning.keep = {1};
    SCOPED_TRACE(fmt::format("{} ranks", P));
    if (std::string_view(GetParam()) == "mistral_window") {  // it has no far keys
      EXPECT_THROW(Runner(loaded_->model, config), Error);
      continue;
    }
    Runner ranks(loaded_->model, config);
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    if (HasFatalFailure()) return;
  }
}

// Uneven steps until every slot of every rank is taken: where a rank is full before the others,
// queries go to the keys in place of a division.
TEST_P(KeysApart, AllRoomIsUsed) {
  constexpr int64_t kFew = 5;
  Runner one(loaded_->model, {.cache = cache_of(kFew)});
  for (int P : {2, 5}) {
    SCOPED_TRACE(fmt::format("{} ranks", P));
    Runner ranks(loaded_->model, ring(P, cache_of(kFew)));
    Sequence sequence{{4, 0, 2, 1, 3}};
    Batch batch(kPageSize);
    while (sequence.cached < kFew * kPageSize) {
      batch.clear();
      sequence.add(batch, std::min<int64_t>(7, kFew * kPageSize - sequence.cached));
      expect_alike(ranks, one, batch, kTolerance);
      if (HasFatalFailure()) return;
    }
    bool queries_went = false, divided = false;
    for (const std::string& line : ranks.explain()) {
      queries_went |= line.find("to the keys on") < line.size();
      divided |= line.find(fmt::format("tokens over {} ranks", P)) < line.size();
    }
    EXPECT_TRUE(divided);
    EXPECT_EQ(queries_went, P == 5) << "7 tokens are 2, 2, 1, 1, 1";
    for (int r = 0; r < P; ++r) {
      for (const Value& value : ranks.last_step(r).executor->program().values) {
        if (value.kind != ValueKind::state) continue;
        EXPECT_EQ(value.type.shape[0], rank_cache(cache_of(kFew), P).pages) << value.name;
      }
    }
  }
}

// One token of each of many sequences: every rank owns some, and holds keys of all.
TEST_P(KeysApart, EveryRankOwnsTokens) {
  Runner one(loaded_->model, {.cache = cache_of(kPages)});
  Runner ranks(loaded_->model, ring(4, cache_of(kPages)));
  std::vector<Sequence> sequences;
  Batch batch(kPageSize);
  for (int32_t s = 0; s < 7; ++s) {
    sequences.push_back({{s, s + 10, s + 20}});
    batch.clear();
    sequences.back().add(batch, 3 + 4 * s);
    expect_alike(ranks, one, batch, kTolerance);
  }
  for (int i = 0; i < 3; ++i) {
    batch.clear();
    for (Sequence& sequence : sequences) sequence.add(batch, 1);
    expect_alike(ranks, one, batch, kTolerance);
  }
}

// Few plans serve all steps. Of eight ranks each holds two pages: one sequence outgrows its rank.
TEST_P(KeysApart, RanksHaveSequencesOfTheirOwn) {
  constexpr int64_t kSmall = 16;  // pages of all ranks
  for (int P : {2, 3, 5, 8}) {
    SCOPED_TRACE(fmt::format("{} ranks", P));
    Runner one(loaded_->model, {.cache = cache_of(kSmall)});
    Runner ranks(loaded_->model, ring(P, cache_of(kSmall), P == 3 ? "overlap" : "sequential"));
    join_ranks_and_leave(P,
                         [&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    if (HasFatalFailure()) return;
    size_t plans = 0;
    for (const std::string& line : ranks.explain()) {
      plans += line.find("guests and") < line.size();
    }
    EXPECT_GE(plans, 2u);
    EXPECT_LE(plans, 7u) << "of 20 steps";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KeysApart,
                         testing::Values("llama2_mha", "smollm2", "mistral_window", "qwen3_qk_norm",
                                         "mixtral", "glm", "chatglm", "internlm2", "llama_yarn"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::golden
