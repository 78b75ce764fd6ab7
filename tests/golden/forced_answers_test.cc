// The check of answers by forced tokens: right answers pass it, and each kind of fault is found.
#include "golden/support/forced_answers.h"

#include <gmock/gmock.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

class ForcedAnswers : public testing::Test {
 protected:
  ForcedAnswers() : folder_("forced_answers") {
    write_hf_folder(load_random_model("smollm2"), folder_.path());
    loaded_ = std::make_unique<LoadedModel>(folder_.path().string());
    runner_ = std::make_unique<Runner>(loaded_->model,
                                       RunnerConfig{.cache = {.pages = kPages,
                                                              .page_size = kPageSize,
                                                              .pages_per_sequence = kPages,
                                                              .kv_dtype = DType::f32}});
    const Tokenizer& t = loaded_->tokenizer;
    for (int32_t id = 0; id < t.vocab_size(); ++id) {
      if (t.is_end_of_generation(id)) ends_.push_back(id);
    }
  }

  std::vector<Answer> answers(const std::vector<AnswerRequest>& requests) {
    const SchedulerConfig c = {.pages = kPages,
                               .page_size = kPageSize,
                               .max_context = kPages * kPageSize,
                               .max_running = 6,
                               .max_step_tokens = 64};
    RequestLoop loop(*runner_, loaded_->tokenizer, loaded_->model.config().V, DType::f32, c);
    std::vector<Answer> all;
    for (const AnswerRequest& request : requests) all.push_back(answer(loop, request));
    return all;
  }
  std::vector<std::string> faults(const AnswerRequest& request, const Answer& answer,
                                  double bound) {
    ForcedCheck check{.bound = bound, .ends = ends_, .context = kPages * kPageSize};
    return check.faults_of({request, answer, *runner_});
  }

  Folder folder_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<Runner> runner_;
  std::vector<int32_t> ends_;
};

TEST_F(ForcedAnswers, RightOnesPassNearlyWithoutABound) {
  std::mt19937 random(5);
  std::vector<AnswerRequest> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(random_request(random, loaded_->model.config().V));
    requests.back().stop.clear();
    requests.back().sampling.logprobs = 1;
    if (i % 4 == 0) requests.back().sampling.top_k = 20;
    if (i % 4 == 1) requests.back().sampling.top_p = 0.9f;
    if (i % 4 == 2) requests.back().sampling.repetition_penalty = 1.3f;
    if (i % 5 == 0) requests.back().min_tokens = 10;
    if (i % 5 == 1) requests.back().sampling.logit_bias = {{77, 3.0f}};
  }
  const std::vector<Answer> all = answers(requests);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_THAT(faults(requests[i], all[i], 1e-4), testing::IsEmpty()) << "request " << i;
  }
}

// Beyond what rounding to bf16 does.
TEST_F(ForcedAnswers, FaultsAreFound) {
  AnswerRequest request{.prompt = {4, 5, 6, 7},
                        .max_tokens = 40,
                        .sampling = {.logprobs = 1},
                        .ignore_eos = true,
                        .prompt_logprobs = 0};
  AnswerRequest drawn = request;
  drawn.sampling.temperature = 0.9f;
  drawn.sampling.seed = 3;
  const std::vector<Answer> right = answers({request, drawn});
  ASSERT_EQ(right[0].tokens.size(), 40u);
  Rounding rounding;
  const double bound = kDraws * rounding.add(loaded_->model, {request, right[0], *runner_});
  EXPECT_GT(rounding.mean(), 0);
  EXPECT_LT(rounding.mean(), bound);
  EXPECT_THAT(faults(request, right[0], bound), testing::IsEmpty());
  EXPECT_THAT(faults(drawn, right[1], bound), testing::IsEmpty());
  const auto found = [&](const char* what, AnswerRequest r, Answer a) {
    EXPECT_THAT(faults(r, a, bound), testing::Not(testing::IsEmpty())) << what;
  };
  Answer wrong = right[0];
  wrong.tokens[20].logprob += 0.5f;
  found("a log-probability", request, wrong);
  wrong = right[0];
  wrong.prompt[1].logprob -= 0.5f;
  found("a log-probability of the prompt", request, wrong);
  wrong = right[0];
  wrong.tokens[30] = wrong.tokens[29];
  found("a token twice", request, wrong);
  wrong = right[0];
  wrong.tokens.erase(wrong.tokens.begin() + 10);
  found("a token lost", request, wrong);
  wrong = right[0];
  wrong.end.reason = AnswerReason::stop;
  wrong.end.answer_tokens = 41;
  found("an end that nothing chose", request, wrong);
  found("the tokens of another request", drawn, right[0]);
  AnswerRequest other = drawn;
  other.sampling.seed = 4;
  found("another seed", other, right[1]);
  other = request;
  other.sampling.repetition_penalty = 1.3f;
  found("a penalty forgotten", other, right[0]);
  other = request;
  other.sampling.logit_bias = {{right[0].tokens[3].id, -100.0f}};
  found("a bias forgotten", other, right[0]);
  other = request;
  other.stop_ids = {right[0].tokens[3].id};
  found("a stop overlooked", other, right[0]);
  other = request;
  std::vector<uint32_t> mask(static_cast<size_t>(ceil_div(loaded_->model.config().V, 32)),
                             0x55555555u);
  other.mask = [&](std::span<const int32_t>) -> std::span<const uint32_t> { return mask; };
  found("a mask forgotten", other, right[0]);
}

}  // namespace
}  // namespace braid::golden
