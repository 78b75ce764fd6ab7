// The facade against the road of one request at a time.
#include "braid/braid.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "braid/engine/step_planners.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  EngineTest() : folder_("engine") {
    write_hf_folder(load_random_model("smollm2"), folder_.path());
    config_.threads = 1;
    config_.max_context = 256;
    config_.kv_dtype = DType::f32;
    limits_.scheduler.max_running = 4;
    limits_.scheduler.max_step_tokens = 128;
    engine_ = std::make_unique<Engine>(folder_.path().string(), config_, limits_);
  }

  Generator generator() const { return {engine_->loaded().model, engine_->tokenizer(), config_}; }
  static std::vector<int32_t> ids_of(const Answer& answer) {
    std::vector<int32_t> ids;
    for (const SampledToken& token : answer.tokens) ids.push_back(token.id);
    return ids;
  }

  Folder folder_;
  EngineConfig config_;
  RequestLimits limits_;
  std::unique_ptr<Engine> engine_;
  const std::vector<int32_t> prompt_ = {5, 9, 17, 4, 40, 3};
};

TEST_F(EngineTest, OpensByPathAndSaysWhatItChose) {
  const auto opened = Engine::open({.model = folder_.path().string(),
                                    .parallel = {.device = "cpu", .engine = config_},
                                    .limits = limits_});
  EXPECT_EQ(opened->max_context(), 256);
  EXPECT_EQ(opened->config().threads, 1);
  EXPECT_EQ(opened->limits().pages, 4 * 256 / 64);
  ASSERT_NE(opened->chat(), nullptr);
  EXPECT_FALSE(opened->chat()->encode({{"user", "a"}}).empty());
  try {
    Engine::open({.model = (folder_.path() / "nothing.gguf").string()});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST_F(EngineTest, AnAnswerIsThatOfTheOtherRoad) {
  Generator one = generator();
  const Generation want = one.generate({.prompt = prompt_, .max_tokens = 20, .ignore_eos = true});
  std::string streamed;
  const Answer got = engine_->generate(
      {.prompt = prompt_, .max_tokens = 20, .ignore_eos = true, .list_tokens = true},
      [&](std::string_view text) {
        streamed += text;
        return true;
      });
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(streamed, want.text);
  EXPECT_EQ(ids_of(got), want.ids);
  EXPECT_EQ(got.end.reason, AnswerReason::length);
}

TEST_F(EngineTest, ManyRequestsWaitTheirTurn) {
  limits_.scheduler.max_waiting = 3;  // fewer than there are requests
  engine_ = std::make_unique<Engine>(folder_.path().string(), config_, limits_);
  std::vector<AnswerRequest> requests;
  for (int i = 0; i < 30; ++i) {
    requests.push_back({.prompt = {5 + i, 9, 4}, .max_tokens = 5 + i % 3, .ignore_eos = true});
  }
  const std::vector<Answer> answers = engine_->generate_all(requests);
  ASSERT_EQ(answers.size(), requests.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].text, engine_->generate(requests[i]).text) << i;
    EXPECT_EQ(answers[i].end.answer_tokens, requests[i].max_tokens);
  }
}

TEST_F(EngineTest, ACallerLeavesAnAnswer) {
  int pieces = 0;
  const Answer answer =
      engine_->generate({.prompt = prompt_, .max_tokens = 200, .ignore_eos = true},
                        [&](std::string_view) { return ++pieces < 2; });
  EXPECT_EQ(pieces, 2);
  EXPECT_EQ(answer.end.reason, AnswerReason::abort);
  { AnswerStream left(engine_->requests(), {.prompt = prompt_, .max_tokens = 200}); }
  EXPECT_TRUE(engine_->drain(60));
  EXPECT_EQ(engine_->stats().scheduler.running, 0);
}

TEST_F(EngineTest, ScoresAndLogitsAreThoseOfTheOtherRoad) {
  Generator one = generator();
  const std::vector<double> want = one.score(prompt_, 1);
  const std::vector<double> got = engine_->score(prompt_);
  const std::vector<float> logits = engine_->logits(prompt_);
  const auto V = static_cast<size_t>(engine_->model_config().V);
  ASSERT_EQ(logits.size(), prompt_.size() * V);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const std::span<const float> row(&logits[i * V], V);
    EXPECT_NEAR(got[i], want[i], 1e-4);
    EXPECT_NEAR(row[static_cast<size_t>(prompt_[i + 1])] - log_sum_exp(row), want[i], 1e-4);
  }
  const std::span<const float> last(&logits[(prompt_.size() - 1) * V], V);
  const Generation next = one.generate({.prompt = prompt_, .max_tokens = 1, .ignore_eos = true});
  EXPECT_EQ(std::ranges::max_element(last) - last.begin(), next.ids[0]);
}

TEST_F(EngineTest, WhatCannotBeDoneIsSaid) {
  const auto fails = [](auto&& call, ErrorCode code, const char* text) {
    try {
      call();
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  fails([&] { engine_->generate(AnswerRequest{}); }, ErrorCode::kInvalidArgument, "is empty");
  fails([&] { engine_->generate({.prompt = {1 << 20}}); }, ErrorCode::kInvalidArgument,
        "token id 1048576");
  fails([&] { engine_->score(std::vector<int32_t>{3}); }, ErrorCode::kInvalidArgument,
        "wanted at least 2");
  fails([&] { engine_->device_logits({}); }, ErrorCode::kInvalidArgument, "is empty");
}

TEST_F(EngineTest, LogitsStayOnTheDeviceAndOutliveTheEngine) {
  std::vector<int32_t> prompt(150);  // more than one step's
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % 90);
  const std::vector<float> want = engine_->logits(prompt);
  const DeviceLogits got = engine_->device_logits(prompt);
  engine_.reset();
  ASSERT_EQ(got.tokens * got.vocabulary, std::ssize(want));
  const auto* values = reinterpret_cast<const float*>(got.memory->data());
  EXPECT_TRUE(std::ranges::equal(want, std::span(values, want.size())));
}

TEST_F(EngineTest, RanksDividePromptsOfManyRequests) {
  std::mt19937 random(17);
  std::vector<AnswerRequest> requests;
  for (int i = 0; i < 12; ++i) {
    AnswerRequest& r = requests.emplace_back();
    for (size_t n = 1 + random() % (i % 3 == 0 ? 150 : 5); n > 0; --n) {
      r.prompt.push_back(static_cast<int32_t>(random() % 90));
    }
    if (i % 4 == 1) r.prompt = requests[static_cast<size_t>(i - 1)].prompt;  // keys are shared
    r.max_tokens = 6;
    r.ignore_eos = r.list_tokens = true;
    if (i % 5 == 2) r.prompt_logprobs = 0;
  }
  const std::vector<Answer> want = engine_->generate_all(requests);
  const std::vector<double> scores = engine_->score(requests[0].prompt);
  struct Division {
    std::optional<SpMode> mode;  // none: the engine's choice
    int ranks;
    int64_t own_prompt;  // longer prompts are divided; 0: the engine's choice, above all here
  };
  for (const auto& [mode, ranks, own] : {Division{SpMode::ring, 2, 0},
                                         {SpMode::ring, 3, 20},
                                         {SpMode::ulysses, 2, 1},
                                         {SpMode::ring, 2, 1},
                                         {{}, 4, 1}}) {
    SCOPED_TRACE(
        fmt::format("{} over {}, {} tokens", mode ? to_string(*mode) : "auto", ranks, own));
    config_.tp = ranks;
    config_.sp = SequenceParallel{.mode = mode};
    if (!mode) {
      config_.profile = load_profile("h200");
      config_.profile->activations = DType::f32;
    }
    limits_.scheduler.max_step_tokens = mode == SpMode::ring ? 0 : 128;
    limits_.scheduler.own_prompt = own;
    Engine divided(folder_.path().string(), config_, limits_);
    EXPECT_EQ(divided.limits().max_step_tokens, mode == SpMode::ring ? 256 : 128);
    EXPECT_EQ(divided.limits().own_prompt, own == 0 ? 512 : own);
    const std::vector<Answer> got = divided.generate_all(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(ids_of(got[i]), ids_of(want[i])) << i;
      ASSERT_EQ(got[i].prompt.size(), want[i].prompt.size());
    }
    const std::vector<double> again = divided.score(requests[0].prompt);
    ASSERT_EQ(again.size(), scores.size());
    for (size_t i = 0; i < scores.size(); ++i) EXPECT_NEAR(again[i], scores[i], 1e-3);
  }
}

// 65,536 tokens a rank, or a named step: an engine's steps are a generator's.
TEST_F(EngineTest, DividedPromptsGoInStepsOfTheRanks) {
  const Model& model = engine_->loaded().model;
  config_.tp = 2;
  config_.sp = SequenceParallel{.mode = SpMode::ring};
  EXPECT_EQ(complete(config_, model).prefill_chunk, 256);
  EngineConfig wide = config_;
  wide.max_context = 200000;
  EXPECT_EQ(complete(wide, model).prefill_chunk, 2 * 65536);
  config_.prefill_chunk = 192;
  limits_.scheduler.max_step_tokens = 0;
  EXPECT_EQ(Engine(folder_.path().string(), config_, limits_).limits().max_step_tokens, 192);

  // Half the tokens take half the activations, of more ranks a part.
  const auto bytes = [&](int ranks, int64_t tokens) {
    config_.tp = ranks;
    const EngineConfig c = complete(config_, model);
    return prompt_step_bytes(model, runner_config(c, cache_shape(c, model)), tokens, nullptr);
  };
  EXPECT_NEAR(static_cast<double>(bytes(2, 8192)) / static_cast<double>(bytes(2, 4096)), 2, 0.1);
  EXPECT_LT(bytes(4, 8192), bytes(2, 8192));
  EXPECT_GT(bytes(4, 8192), 8192 / 4 * model.config().C * 4) << "the residual alone";
}

// Runs steps of few tokens, and refuses others.
class OnlyShort : public OpScheduler {
 public:
  std::string name() const override { return "only_short"; }
  void partition(PartitionRules&) const override {}
  void schedule(ScheduleContext& ctx) const override {
    if (ctx.capacity(0).token > 32) throw std::runtime_error("this step is too long");
    ctx.execute(ctx.ready(0));
  }
};

TEST_F(EngineTest, AStrategyThatIsRefusedEndsTheRequestsOfItsStep) {
  const AnswerRequest small{.prompt = prompt_, .max_tokens = 5, .ignore_eos = true};
  const std::string want = engine_->generate(small).text;
  config_.strategy = std::make_shared<OnlyShort>();
  Engine engine(folder_.path().string(), config_, limits_);
  for (int i = 0; i < 2; ++i) {
    try {
      engine.generate({.prompt = std::vector<int32_t>(100, 3), .max_tokens = 5});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAborted);
      EXPECT_THAT(error.what(), HasSubstr("this step is too long"));
    }
    EXPECT_EQ(engine.generate(small).text, want);
  }
  EXPECT_EQ(engine.stats().scheduler.pages.held, 0);
  EXPECT_EQ(engine.stats().error, "");
}

}  // namespace
}  // namespace braid::golden
