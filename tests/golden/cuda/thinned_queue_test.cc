// An engine with thinned prompts on GPUs: decode steps and exact prompts have the graphs of an
// engine that keeps all keys, and a thinned prompt is planned as it comes.
#include <gmock/gmock.h>

#include "braid/braid.h"
#include "golden/support/forward.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

constexpr size_t kGroup = 4;  // ranks of the level

class ThinnedQueue : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(GetParam())) GTEST_SKIP() << why;
    folder_.emplace(fmt::format("thinned_queue_{}", GetParam()));
    write_hf_folder(load_random_model("llama3_gqa"), folder_->path());
  }
  // `groups` of levels; none: all keys.
  std::unique_ptr<Engine> engine(std::vector<int> groups, bool on_host = false) const {
    Thinning thinning;
    if (!groups.empty()) thinning = {.keep = {0.4}, .groups = std::move(groups)};
    return engine(thinning, 0, on_host);
  }
  // Steps of at most `step_tokens`; 0: as many as fit.
  std::unique_ptr<Engine> engine(const Thinning& thinning, int64_t step_tokens,
                                 bool on_host) const {
    const EngineConfig config{.device = gpus_for(GetParam()),
                              .tp = GetParam(),
                              .thinning = thinning,
                              .threads = 1,
                              .max_context = 512};
    RequestLimits limits;
    limits.scheduler.max_running = 4;
    limits.scheduler.max_step_tokens = step_tokens;
    limits.kv_bytes = 64 << 20;
    limits.sample_on_host = on_host;
    return std::make_unique<Engine>(folder_->path().string(), config, limits);
  }
  static AnswerRequest request(size_t tokens, bool exact, const std::string& salt) {
    AnswerRequest r{.prompt = std::vector<int32_t>(tokens),
                    .max_tokens = 24,
                    .sampling = {.logprobs = 0},
                    .ignore_eos = true,
                    .list_tokens = true,
                    .salt = salt,
                    .exact = exact};
    for (size_t i = 0; i < tokens; ++i) {
      r.prompt[i] = static_cast<int32_t>((i * 37 + i / 7 * 11 + 5) % 250);
    }
    return r;
  }
  // The first `tokens` tokens of both.
  static void expect_equal(const Answer& got, const Answer& want, size_t tokens) {
    ASSERT_FALSE(got.end.error) << got.end.error->what();
    ASSERT_EQ(got.tokens.size(), want.tokens.size());
    for (size_t i = 0; i < tokens; ++i) {
      ASSERT_EQ(got.tokens[i].id, want.tokens[i].id) << "token " << i;
      EXPECT_NEAR(got.tokens[i].logprob, want.tokens[i].logprob, 1e-3) << "token " << i;
    }
    ASSERT_EQ(got.end.approximate != nullptr, want.end.approximate != nullptr);
    if (!want.end.approximate) return;
    EXPECT_EQ(got.end.approximate->levels, want.end.approximate->levels);
    EXPECT_EQ(got.end.approximate->shares.pair_share(), want.end.approximate->shares.pair_share());
  }

  std::optional<Folder> folder_;
};

// Thinned prompts have the greedy answers of steps that the runner plans one by one, also behind
// cached pages. Nothing is prepared late but those prompts.
TEST_P(ThinnedQueue, AnswersAreThoseOfUnpreparedSteps) {
  const auto thins = engine({kGroup}), by_steps = engine({kGroup}, true), exact = engine({});
  const auto late = [&] { return thins->stats().late_preparations; };
  const auto both = [&](Engine& other, const AnswerRequest& r) {
    SCOPED_TRACE(fmt::format("{} tokens{}", r.prompt.size(), r.exact ? ", exact" : ""));
    const Answer got = thins->generate(r), want = other.generate(r);
    expect_equal(got, want, want.tokens.size());
    return got;
  };
  both(*exact, request(300, true, "a"));
  both(*exact, request(kGroup - 1, false, "b"));
  EXPECT_EQ(late(), 0);
  const Answer first = both(*by_steps, request(300, false, "c"));
  EXPECT_TRUE(first.end.approximate);
  EXPECT_GT(late(), 0) << "the prompt's plan";
  const Answer again = both(*by_steps, request(300, false, "c"));
  EXPECT_EQ(again.end.cached_tokens, 256);
  both(*by_steps, request(131, false, "d"));
  both(*by_steps, request(kGroup, false, "e"));
  const int64_t plans = late();
  both(*exact, request(200, true, "f"));
  EXPECT_EQ(late(), plans);
  EXPECT_EQ(exact->stats().late_preparations, 0);
}

// Beside others' answers, whose steps it waits behind, a thinned prompt is alone in its step.
TEST_P(ThinnedQueue, PromptsAmongAnswersBeginAsAlone) {
  const auto thins = engine({kGroup}), by_steps = engine({kGroup}, true), exact = engine({});
  std::vector<AnswerRequest> requests;
  for (size_t i = 0; i < 12; ++i) {
    requests.push_back(request(300 - 23 * i, i % 3 == 1, std::to_string(i)));
  }
  const std::vector<Answer> answers = thins->generate_all(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(answers[i].end.reason, AnswerReason::length);
    EXPECT_EQ(answers[i].tokens.size(), 24u);
    EXPECT_EQ(answers[i].end.approximate != nullptr, !requests[i].exact);
    // Later tokens hang on the answers beside, whose number rounds products otherwise.
    Engine& alone = requests[i].exact ? *exact : *by_steps;
    expect_equal(answers[i], alone.generate(requests[i]), 1);
  }
  EXPECT_EQ(thins->stats().scheduler.pages.held, 0);
}

// Where no levels are named, a prompt that fits into a step of many requests waits for no plan.
TEST_P(ThinnedQueue, ShortPromptsStayExact) {
  const auto thins = engine({.keep = {0.4}}, 128, false), exact = engine({}, 128, false);
  const Answer in_a_step = thins->generate(request(128, false, "a"));
  expect_equal(in_a_step, exact->generate(request(128, false, "a")), 24);
  EXPECT_EQ(thins->stats().late_preparations, 0);
  EXPECT_TRUE(thins->generate(request(129, false, "b")).end.approximate);
  EXPECT_GT(thins->stats().late_preparations, 0);
}

TEST_P(ThinnedQueue, ARefusedPromptEndsNoOther) {
  const auto refuses = engine({17}), exact = engine({});
  AnswerStream other(refuses->requests(), request(90, true, "a"));
  try {
    refuses->generate(request(300, false, "b"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--levels of 16 ranks at most"));
  }
  EXPECT_EQ(other.rest().end.reason, AnswerReason::length);
  const AnswerRequest r = request(90, true, "c");
  expect_equal(refuses->generate(r), exact->generate(r), 24);
  EXPECT_EQ(refuses->stats().scheduler.pages.held, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThinnedQueue, testing::Values(1, 2),
                         [](const auto& info) { return fmt::format("{}", info.param); });

}  // namespace
}  // namespace braid::golden
