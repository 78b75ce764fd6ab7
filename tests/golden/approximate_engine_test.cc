// An engine with approximate prompts: answers are a generator's with the same levels, exact
// requests stand beside, and each takes the pages of its own kind.
#include <gmock/gmock.h>

#include <algorithm>

#include "braid/braid.h"
#include "golden/support/forward.h"
#include "golden/support/level_golden.h"
#include "golden/support/slow_machines.h"

namespace braid::golden {
namespace {

constexpr int64_t kPage = 64;

class ApproximateEngine : public testing::Test {
 protected:
  ApproximateEngine() {
    golden_.write(folder_.path());
    loaded_.emplace(folder_.path().string());
    exact_.threads = 1;
    exact_.max_context = 512;
    exact_.kv_dtype = DType::f32;
    limits_.scheduler.max_running = 4;
    for (int i = 0; i < 300; ++i) prompt_.push_back((i * 37 + i / 7 * 11 + 5) % 250);
  }

  // One rank with the parts of four.
  EngineConfig thinned(Importance importance = Importance::own) const {
    EngineConfig config = exact_;
    config.thinning = {.keep = {0.4}, .groups = {4}, .importance = importance};
    return config;
  }
  std::unique_ptr<Engine> engine(const EngineConfig& config) const {
    return std::make_unique<Engine>(folder_.path().string(), config, limits_);
  }
  AnswerRequest request(bool exact = false) const {
    return {.prompt = prompt_,
            .max_tokens = 12,
            .ignore_eos = true,
            .list_tokens = true,
            .exact = exact};
  }
  // By a generator, with what its prompt left out.
  std::pair<std::vector<int32_t>, std::optional<Approximation>> alone(
      const EngineConfig& config, const AnswerRequest& request) const {
    Generator one(loaded_->model, loaded_->tokenizer, config);
    const Generation made = one.generate(
        {.prompt = request.prompt, .max_tokens = request.max_tokens, .ignore_eos = true});
    return {made.ids, one.runner().approximation()};
  }
  static std::vector<int32_t> ids_of(const Answer& answer) {
    std::vector<int32_t> ids;
    for (const SampledToken& token : answer.tokens) ids.push_back(token.id);
    return ids;
  }

  const LevelGolden golden_ = load_level_golden();
  const Folder folder_{"approximate_engine"};
  std::optional<LoadedModel> loaded_;
  EngineConfig exact_;
  RequestLimits limits_;
  std::vector<int32_t> prompt_;
};

// Pages of approximate prompts serve approximate prompts alone: an exact request computes all its
// tokens, which are counted, and then its pages serve exact requests.
TEST_F(ApproximateEngine, ExactRequestsStandBeside) {
  const auto [thin, left_out] = alone(thinned(), request());
  const auto dense = alone(exact_, request()).first;
  ASSERT_NE(thin, dense);
  ASSERT_TRUE(left_out);
  const auto both = engine(thinned());
  EXPECT_EQ(both->limits().max_step_tokens, 512) << "a prompt in one step";
  const Answer first = both->generate(request());
  EXPECT_EQ(ids_of(first), thin);
  ASSERT_TRUE(first.end.approximate);
  EXPECT_EQ(first.end.approximate->levels, left_out->levels);
  EXPECT_EQ(first.end.approximate->shares.pair_share(), left_out->shares.pair_share());
  EXPECT_EQ(first.end.approximate->shares.key_share(), left_out->shares.key_share());
  EXPECT_EQ(both->stats().scheduler.approximate_passed, 0);

  const Answer exact = both->generate(request(true));
  EXPECT_EQ(ids_of(exact), dense);
  EXPECT_FALSE(exact.end.approximate);
  EXPECT_EQ(exact.end.cached_tokens, 0) << "approximate pages alone";
  EXPECT_EQ(both->stats().scheduler.approximate_passed, 4 * kPage);
  const Answer again = both->generate(request(true));
  EXPECT_EQ(ids_of(again), dense);
  EXPECT_EQ(again.end.cached_tokens, 4 * kPage);
  EXPECT_EQ(both->stats().scheduler.approximate_passed, 4 * kPage);

  const Answer second = both->generate(request());
  EXPECT_EQ(second.end.cached_tokens, 4 * kPage);
  EXPECT_TRUE(second.end.approximate) << "its cached keys are";

  // Scored prompts are exact, and so are prompts with fewer tokens than the levels' ranks.
  const auto want = engine(exact_)->score(prompt_);
  const auto got = both->score(prompt_);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
  AnswerRequest few = request();
  few.prompt.resize(3);
  const Answer little = both->generate(few);
  EXPECT_EQ(ids_of(little), alone(exact_, few).first);
  EXPECT_FALSE(little.end.approximate);
}

// With probe a prompt's keys depend on its end, and serve nobody else.
TEST_F(ApproximateEngine, PagesOfProbedPromptsServeNobody) {
  for (const Importance importance : {Importance::probe, Importance::previous}) {
    const auto want = alone(thinned(importance), request()).first;
    const auto engine = this->engine(thinned(importance));
    for (int i = 0; i < 2; ++i) {
      const Answer answer = engine->generate(request());
      EXPECT_EQ(ids_of(answer), want);
      EXPECT_EQ(answer.end.cached_tokens, 0);
      EXPECT_EQ(engine->stats().scheduler.pages.cached, 0);
    }
    EXPECT_EQ(engine->generate(request(true)).end.cached_tokens, 0);
    EXPECT_EQ(engine->stats().scheduler.approximate_passed, 0) << "no such page is kept";
    EXPECT_EQ(engine->generate(request(true)).end.cached_tokens, 4 * kPage);
  }
}

TEST_F(ApproximateEngine, AllKeysAreExact) {
  EngineConfig all = thinned();
  all.thinning.keep = {1};
  const auto engine = this->engine(all);
  const auto dense = alone(exact_, request()).first;
  for (const bool exact : {false, true}) {
    const Answer answer = engine->generate(request(exact));
    EXPECT_EQ(ids_of(answer), dense);
    EXPECT_FALSE(answer.end.approximate);
    EXPECT_EQ(answer.end.cached_tokens, exact ? 4 * kPage : 0);
  }
}

// On GPUs the sizes of steps that are planned before requests come.
TEST_F(ApproximateEngine, OthersShareStepsAsLargeAsWithAllKeys) {
  limits_.scheduler.max_step_tokens = 0;
  exact_.max_context = 2048;
  const auto thins = engine(thinned()), exact = engine(exact_);
  EXPECT_EQ(thins->limits().max_step_tokens, 2048);
  EXPECT_EQ(thins->limits().most_shared(), 512);
  EXPECT_EQ(exact->limits().most_shared(), 512);
}

// Many at once, on one rank, on ranks that divide heads, and on ranks that divide prompts.
TEST_F(ApproximateEngine, ManyRequestsOfBothKindsAreAnsweredAsAlone) {
  limits_.scheduler.prefix_cache = false;
  EngineConfig heads = thinned(), ring = thinned(), chosen = thinned();
  heads.tp = 3;
  ring.tp = chosen.tp = 2;
  ring.sp = SequenceParallel{.mode = SpMode::ring};
  chosen.sp = SequenceParallel{};
  chosen.profile = load_profile("h200");
  chosen.profile->activations = DType::f32;
  for (const EngineConfig& config : {thinned(), heads, ring, chosen}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", config.tp,
                             !config.sp        ? "heads"
                             : config.sp->mode ? "ring"
                                               : "auto"));
    limits_.scheduler.own_prompt = config.sp ? 64 : 0;
    const auto engine = this->engine(config);
    EngineConfig dense = config;
    dense.thinning = {};
    std::vector<AnswerRequest> requests;
    for (int i = 0; i < 9; ++i) {
      AnswerRequest& r = requests.emplace_back(request(i % 3 == 1));
      r.prompt.resize(static_cast<size_t>(i % 4 == 3 ? 3 : 300 - 29 * i));
      r.max_tokens = 8;
    }
    const std::vector<Answer> answers = engine->generate_all(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const bool thins =
          !requests[i].exact &&
          std::ssize(requests[i].prompt) >= std::max<int64_t>(4, limits_.scheduler.own_prompt + 1);
      EXPECT_EQ(ids_of(answers[i]), alone(thins ? config : dense, requests[i]).first) << i;
      EXPECT_EQ(answers[i].end.approximate != nullptr, thins) << i;
    }
    EXPECT_EQ(engine->stats().scheduler.pages.held, 0);
  }
}

}  // namespace
}  // namespace braid::golden
