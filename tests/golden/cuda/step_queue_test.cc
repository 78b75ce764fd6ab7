// Many requests on a GPU, whose steps are put in one behind the other, against each of them alone.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "braid/engine/loaded_model.h"
#include "braid/engine/requests/request_loop.h"
#include "golden/support/forced_answers.h"
#include "golden/support/held_masks.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class StepQueueTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (usable_gpus() < GetParam()) GTEST_SKIP() << "no " << GetParam() << " GPUs";
    folder_ = std::make_unique<Folder>("step_queue");
    write_hf_folder(load_random_model("smollm2"), folder_->path());
    loaded_ = std::make_unique<LoadedModel>(folder_->path().string());
  }

  SchedulerConfig config(int64_t pages = 96) const {
    return {.pages = pages,
            .page_size = kPageSize,
            .max_context = kSequencePages * kPageSize,
            .max_running = 12,
            .max_step_tokens = 128};
  }
  std::unique_ptr<Runner> runner(const SchedulerConfig& c) const {
    return std::make_unique<Runner>(loaded_->model,
                                    RunnerConfig{.device = {.cuda = true, .ids = {}},
                                                 .tp = GetParam(),
                                                 .cache = {.pages = c.pages,
                                                           .page_size = c.page_size,
                                                           .pages_per_sequence = kSequencePages,
                                                           .kv_dtype = DType::bf16,
                                                           .activations = DType::bf16}});
  }
  std::unique_ptr<RequestLoop> loop(Runner& runner, const SchedulerConfig& c,
                                    bool on_host = false) const {
    return std::make_unique<RequestLoop>(
        runner, loaded_->tokenizer, vocabulary(), DType::bf16, c,
        StepQueueOptions{.graph_bytes = int64_t{1} << 30, .on_host = on_host});
  }
  int64_t vocabulary() const { return loaded_->model.config().V; }
  std::vector<int32_t> ends() const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < loaded_->tokenizer.vocab_size(); ++id) {
      if (loaded_->tokenizer.is_end_of_generation(id)) ids.push_back(id);
    }
    return ids;
  }

  AnswerRequest request(std::mt19937& random) const {
    AnswerRequest request = random_request(random, vocabulary());
    request.stop.clear();  // a stop text says nothing of the tokens
    request.sampling.logprobs = 1;
    if (random() % 4 == 0) request.sampling.repetition_penalty = 1.3f;
    if (random() % 4 == 0) request.sampling.top_k = 20;
    if (random() % 4 == 0) request.sampling.top_p = 0.9f;
    if (random() % 4 == 0) {
      for (int i = 0; i < 40; ++i) {
        const auto id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary()));
        request.sampling.logit_bias.emplace_back(id, static_cast<float>(i % 7) - 3);
      }
    }
    if (random() % 4 == 0) request.min_tokens = 10;
    if (random() % 8 == 0) {
      // A mask that the host asks for: every second id.
      const auto words = static_cast<size_t>(ceil_div(vocabulary(), 32));
      request.mask = [mask = std::vector<uint32_t>(words, 0x55555555u)](
                         std::span<const int32_t>) -> std::span<const uint32_t> { return mask; };
    }
    return request;
  }

  std::unique_ptr<Folder> folder_;
  std::unique_ptr<LoadedModel> loaded_;
};

// Each token of each answer is one that the CPU's logits in f32, of this request alone and behind
// the same tokens, can choose within rounding to bf16. Rounding is measured by the ops' references.
TEST_P(StepQueueTest, AnswersAreThoseOfEachRequestAlone) {
  Runner reference(loaded_->model, {.cache = {.pages = kPages,
                                              .page_size = kPageSize,
                                              .pages_per_sequence = kPages,
                                              .kv_dtype = DType::f32}});
  for (const int64_t pages : {96, 14}) {  // plenty, and so few that requests are preempted
    const uint32_t seed = 21;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << pages << " pages");
    std::mt19937 random(seed);
    const SchedulerConfig c = config(pages);
    const auto run = runner(c);
    std::vector<AnswerRequest> requests;
    for (int i = 0; i < 64; ++i) requests.push_back(request(random));
    const auto many = loop(*run, c);
    for (int i = 0; i < 80; ++i) answer(*many, {.prompt = {1}, .max_tokens = 1});
    std::vector<std::shared_ptr<Collector>> sinks;
    std::vector<bool> cancelled;
    for (const AnswerRequest& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      const RequestId id = many->submit(request, sinks.back());
      cancelled.push_back(random() % 8 == 0);
      if (cancelled.back()) many->cancel(id);
    }
    ForcedCheck check{.ends = ends(), .context = c.room()};
    Rounding rounding;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i);
      const AnswerEnd end = sinks[i]->wait();
      if (cancelled[i] && end.reason == AnswerReason::abort) continue;
      ASSERT_FALSE(end.error) << end.error->what();
      const Answer got{sinks[i]->text, end, sinks[i]->tokens, sinks[i]->prompt};
      const ForcedAnswer forced(requests[i], got, reference);
      check.bound = kDraws * rounding.add(loaded_->model, forced);
      EXPECT_THAT(check.faults_of(forced), testing::IsEmpty());
    }
    // A fault too small to be seen in one place shows in the mean.
    const double distance = std::sqrt(check.squares / static_cast<double>(check.distances));
    EXPECT_LE(distance, kDraws * rounding.mean());
    fmt::print("{} log-probabilities: {:.4f} from the reference, {:.4f} at most; rounding {:.4f}\n",
               check.distances, distance, check.most, rounding.mean());
    ASSERT_TRUE(many->drain(60));
    const RequestStats stats = many->stats();
    EXPECT_EQ(stats.scheduler.pages.held, 0);
    EXPECT_EQ(stats.scheduler.pages.free + stats.scheduler.pages.cached, pages);
    EXPECT_EQ(stats.late_preparations, 0);
    if (pages == 14) {
      EXPECT_GT(stats.scheduler.preemptions, 0);
    }
  }
}

TEST_P(StepQueueTest, TheSameAgainIsTheSameToTheBit) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  const auto one = loop(*run, c);
  AnswerRequest request{.prompt = {4, 5, 6},
                        .max_tokens = 100,
                        .sampling = {.temperature = 1, .seed = 5, .logprobs = 0},
                        .ignore_eos = true};
  const Answer first = answer(*one, request);
  const Answer again = answer(*one, request);
  ASSERT_EQ(first.tokens.size(), 100u);
  ASSERT_EQ(again.tokens.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(first.tokens[i].id, again.tokens[i].id);
    EXPECT_EQ(first.tokens[i].logprob, again.tokens[i].logprob);
  }
}

TEST_P(StepQueueTest, AStopDropsAtMostTwoTokensAndOthersGoOn) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  const auto many = loop(*run, c);
  AnswerRequest request{
      .prompt = {4, 5, 6}, .max_tokens = 60, .sampling = {.logprobs = 0}, .ignore_eos = true};
  request.sampling.logit_bias = {{77, 100.0f}};
  const Answer biased = answer(*many, request);
  ASSERT_EQ(biased.tokens.size(), 60u);
  for (const SampledToken& token : biased.tokens) EXPECT_EQ(token.id, 77);
  const int64_t before = many->stats().dropped_tokens;
  const auto longest = std::make_shared<Collector>();
  many->submit(request, longest);
  AnswerRequest stops = request;
  stops.stop_ids = {77};
  for (const int64_t min_tokens : {0, 3, 7}) {
    stops.min_tokens = min_tokens;
    const Answer stopped = answer(*many, stops);
    EXPECT_EQ(stopped.end.reason, AnswerReason::stop);
    EXPECT_EQ(stopped.end.answer_tokens, min_tokens + 1);
  }
  EXPECT_EQ(longest->wait().reason, AnswerReason::length);
  EXPECT_EQ(longest->tokens.size(), 60u);
  ASSERT_TRUE(many->drain(30));
  EXPECT_LE(many->stats().dropped_tokens - before, 6);
  EXPECT_EQ(many->stats().late_preparations, 0);
}

TEST_P(StepQueueTest, AFaultOfOneRequestEndsItAlone) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  const auto many = loop(*run, c);
  AnswerRequest good{.prompt = {1, 2, 3}, .max_tokens = 30, .ignore_eos = true};
  const Answer want = answer(*many, good);
  std::vector<uint32_t> nothing(static_cast<size_t>(ceil_div(vocabulary(), 32)));
  AnswerRequest bad = good;
  bad.mask = [&](std::span<const int32_t> generated) -> std::span<const uint32_t> {
    if (generated.size() < 3) return {};
    return nothing;
  };
  const auto first = std::make_shared<Collector>(), second = std::make_shared<Collector>(),
             third = std::make_shared<Collector>(2);
  many->submit(bad, first);
  many->submit(good, second);
  many->submit(good, third);  // its sink has had enough after two pieces
  EXPECT_EQ(first->wait().reason, AnswerReason::error);
  EXPECT_THAT(first->wait().error->what(), HasSubstr(kNoTokenAllowed));
  EXPECT_EQ(second->wait().reason, AnswerReason::length);
  EXPECT_EQ(third->wait().reason, AnswerReason::abort);
}

// Masked tokens are sampled on the device, in steps that begin with their masks.
TEST_P(StepQueueTest, ALateMaskHoldsItsOwnRequestAlone) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  HeldMasks masks(vocabulary());
  const auto many = loop(*run, c);
  AnswerRequest masked{
      .prompt = {1, 2, 3}, .max_tokens = 8, .sampling = {.logprobs = 0}, .ignore_eos = true};
  masked.mask = masks.mask();
  const auto sink = std::make_shared<Collector>();
  many->submit(masked, sink);
  const AnswerRequest other{.prompt = {4, 5}, .max_tokens = 20, .ignore_eos = true};
  for (size_t held = 1; held < 8; ++held) {
    ASSERT_TRUE(masks.asked(held));
    EXPECT_EQ(answer(*many, other).end.answer_tokens, 20);
    masks.let_pass(held);
  }
  EXPECT_EQ(sink->wait().reason, AnswerReason::length);
  ASSERT_EQ(sink->tokens.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sink->tokens[i].id, masks.wanted(i));
  EXPECT_TRUE(many->drain(60));
  // A busy machine may be late with the first mask, too, which nobody holds.
  EXPECT_GE(many->stats().late_masks, 7);
  EXPECT_LE(many->stats().late_masks, 8);
  EXPECT_EQ(many->stats().late_preparations, 0);
}

TEST_P(StepQueueTest, LogitsOfAPromptAreTheSameOnTheDeviceAndOnTheHost) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  const auto many = loop(*run, c);
  AnswerRequest request{.prompt = std::vector<int32_t>(150), .max_tokens = 1};
  for (int32_t i = 0; i < 150; ++i) request.prompt[static_cast<size_t>(i)] = i % 90;
  std::vector<float> host(request.prompt.size() * static_cast<size_t>(vocabulary()));
  const auto row_bytes = vocabulary() * static_cast<int64_t>(sizeof(float));
  const auto device = run->allocate(std::ssize(request.prompt) * row_bytes);
  request.on_logits = [&](int64_t position, std::span<const float> row) {
    std::ranges::copy(row, host.begin() + position * vocabulary());
  };
  request.on_logit_rows = [&](int64_t position, const TensorView& rows) {
    run->copy(rows, device->data() + position * row_bytes);
  };
  const auto other = std::make_shared<Collector>();  // whose steps have these rows, too
  many->submit({.prompt = {1, 2, 3}, .max_tokens = 60, .ignore_eos = true}, other);
  answer(*many, request);
  EXPECT_EQ(other->wait().reason, AnswerReason::length);
  std::vector<float> copied(host.size());
  ASSERT_EQ(cudaMemcpy(copied.data(), device->data(), host.size() * sizeof(float),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_TRUE(std::ranges::none_of(host, [](float x) { return std::isnan(x); }));
  EXPECT_TRUE(std::ranges::any_of(host, [](float x) { return x != 0; }));
  EXPECT_TRUE(copied == host);
}

// Ranks that divide tokens, with keys apart or together: rank 0's device samples what the host
// would, for long prompts and short ones, and with biases and penalties.
TEST(SampledStepQueue, AnswersAreThoseOfTheHost) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Folder folder("sampled_queue");
  write_hf_folder(load_random_model("smollm2"), folder.path());
  const LoadedModel loaded(folder.path().string());
  const int64_t vocabulary = loaded.model.config().V;
  for (const bool apart : {true, false}) {
    SCOPED_TRACE(apart ? "keys apart" : "keys together");
    RunnerConfig config = cuda_runner(2);
    config.sp = SequenceParallel{.mode = SpMode::ring, .degrees = {}, .apart = apart};
    config.cache.pages_per_sequence = kSequencePages;
    const SchedulerConfig c{.pages = kPages,
                            .page_size = kPageSize,
                            .max_context = kSequencePages * kPageSize,
                            .max_running = 6,
                            .max_step_tokens = 256,
                            .prompts_alone = true,
                            .groups = apart ? 2 : 1,
                            .own_prompt = apart ? 20 : 0};
    const auto answers = [&](bool on_host) {
      Runner runner(loaded.model, config);  // whose keys lie where another's do
      RequestLoop loop(runner, loaded.tokenizer, vocabulary, DType::bf16, c,
                       StepQueueOptions{.on_host = on_host});
      std::vector<Answer> all;
      for (const int64_t length : {5, 61, 1}) {
        AnswerRequest request{.prompt = {},
                              .max_tokens = 24,
                              .sampling = {.repetition_penalty = 1.2f, .logprobs = 1},
                              .ignore_eos = true};
        for (int32_t i = 0; i < length; ++i) request.prompt.push_back((i * 7 + 3) % 90);
        request.sampling.logit_bias = {{5, 2.f}, {9, -3.f}};
        all.push_back(answer(loop, request));
      }
      EXPECT_TRUE(loop.drain(60));
      return all;
    };
    const std::vector<Answer> want = answers(true), got = answers(false);
    for (size_t a = 0; a < want.size(); ++a) {
      ASSERT_FALSE(got[a].end.error) << got[a].end.error->what();
      ASSERT_EQ(got[a].tokens.size(), want[a].tokens.size()) << "answer " << a;
      for (size_t i = 0; i < want[a].tokens.size(); ++i) {
        ASSERT_EQ(got[a].tokens[i].id, want[a].tokens[i].id) << "token " << i << " of " << a;
        EXPECT_NEAR(got[a].tokens[i].logprob, want[a].tokens[i].logprob, 1e-3);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, StepQueueTest, testing::Values(1, 2));

}  // namespace
}  // namespace braid::golden
