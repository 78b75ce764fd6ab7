// Prompts on the first ranks, as `--sp auto` takes them where further ranks cost more: logits and
// tokens are one rank's, and later steps go on with the keys of these ranks.
#include <gtest/gtest.h>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"
#include "golden/support/slow_machines.h"

namespace braid::golden {
namespace {

constexpr double kTolerance = 1e-5;  // f32

// Sequences whose first steps have `first` tokens each, then small steps: a part's steps and all
// ranks' larger ones in turn, so that memory grows alike on all.
void expect_alike_in_steps(Runner& ranks, Runner& one, std::initializer_list<int64_t> first) {
  for (int64_t n : first) {
    Sequence sequence{{7, 8, 11, 12, 13, 14, 15, 16}};
    for (int64_t tokens : {n, int64_t{11}, int64_t{1}, int64_t{11}}) {
      Batch batch(kPageSize);
      sequence.add(batch, tokens);
      expect_alike(ranks, one, batch, kTolerance);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

class PartsOfRanks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_.emplace(GetParam() + "_parts_of_ranks");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
  }
  // Machines with two ranks.
  RunnerConfig config(int ranks) const {
    return {.tp = ranks,
            .sp = SequenceParallel{},
            .cache = kCache,
            .schedule = "sequence_parallel",
            .links = {.machines = ranks / 2},
            .profile = slow_machines(DType::f32)};
  }

  static constexpr CacheShape kCache = {.pages = kPages,
                                        .page_size = kPageSize,
                                        .pages_per_sequence = kPages,
                                        .kv_dtype = DType::f32};
  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

TEST_P(PartsOfRanks, LogitsAreThoseOfOneRank) {
  Runner one(loaded_->model, {.cache = kCache});
  for (const auto& [P, schedule] :
       {std::pair(4, "sequence_parallel"), {4, "auto"}, {8, "sequence_parallel"}, {8, "auto"}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", P, schedule));
    RunnerConfig c = config(P);
    c.schedule = schedule;
    Runner ranks(loaded_->model, c);
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    expect_alike_in_steps(ranks, one, {9, 40, 20, 90});
    if (HasFatalFailure()) return;
    expect_two_ranks(ranks.explain());
  }
}

TEST_P(PartsOfRanks, GreedyTokensAreThoseOfOneRank) {
  Generator generator(loaded_->model, loaded_->tokenizer,
                      {.tp = 4,
                       .sp = SequenceParallel{},
                       .threads = 1,
                       .schedule = "sequence_parallel",
                       .links = {.machines = 2},
                       .profile = slow_machines(DType::f32)});
  for (const Case& c : load_golden(GetParam()).cases) {
    expect_greedy(generator, c, greedy_tolerance(loaded_->model));
    if (HasFatalFailure()) return;
  }
}

// Rings of the first ranks, whose number does not divide all: the last ranks have smaller groups.
TEST(UnevenPartsOfRanks, LogitsAreThoseOfOneRank) {
  constexpr CacheShape kCache = {.pages = kPages,
                                 .page_size = kPageSize,
                                 .pages_per_sequence = kPages,
                                 .kv_dtype = DType::f32};
  Folder folder("uneven_parts_of_ranks");
  write_hf_folder(load_random_model("llama_yarn"), folder.path());
  const LoadedModel loaded(folder.path().string());
  Runner one(loaded.model, {.cache = kCache});
  for (int P : {3, 5, 7}) {
    SCOPED_TRACE(fmt::format("{} ranks", P));
    Runner ranks(loaded.model, {.tp = P,
                                .sp = SequenceParallel{},
                                .cache = kCache,
                                .schedule = "sequence_parallel",
                                .profile = slow_peers(DType::f32)});
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, kTolerance); });
    expect_alike_in_steps(ranks, one, {9, 90, 20, 40});
    if (HasFatalFailure()) return;
    expect_uneven_parts(ranks.explain(), P);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PartsOfRanks,
                         testing::Values("llama2_mha", "mistral_window", "qwen3_qk_norm",
                                         "mixtral"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::golden
