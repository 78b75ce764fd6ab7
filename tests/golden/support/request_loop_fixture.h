#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "braid/engine/loaded_model.h"
#include "braid/engine/requests/request_loop.h"
#include "golden/support/answers.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {

inline void expect_equal(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.end.reason, want.end.reason);
  EXPECT_EQ(got.end.answer_tokens, want.end.answer_tokens);
  for (const auto& [a, b] :
       {std::pair(&got.tokens, &want.tokens), std::pair(&got.prompt, &want.prompt)}) {
    ASSERT_EQ(a->size(), b->size());
    for (size_t i = 0; i < a->size(); ++i) {
      EXPECT_EQ((*a)[i].id, (*b)[i].id);
      EXPECT_NEAR((*a)[i].logprob, (*b)[i].logprob, 1e-4);
      EXPECT_EQ((*a)[i].top.size(), (*b)[i].top.size());
    }
  }
}

// Loops of a model with random weights.
class LoopFixture : public testing::Test {
 protected:
  LoopFixture() : folder_("request_loop") {
    write_hf_folder(load_random_model("smollm2"), folder_.path());
    loaded_ = std::make_unique<LoadedModel>(folder_.path().string());
  }

  SchedulerConfig config(int64_t pages = 96) const {
    return {.pages = pages,
            .page_size = kPageSize,
            .max_context = kSequencePages * kPageSize,
            .max_running = 6,
            .max_step_tokens = 64};
  }
  std::unique_ptr<Runner> runner(const SchedulerConfig& c, int tp = 1) const {
    return std::make_unique<Runner>(loaded_->model,
                                    RunnerConfig{.tp = tp,
                                                 .cache = {.pages = c.pages,
                                                           .page_size = c.page_size,
                                                           .pages_per_sequence = kSequencePages,
                                                           .kv_dtype = DType::f32}});
  }
  int64_t vocabulary() const { return loaded_->model.config().V; }
  // The answer of each request, one after another and without cached prefixes.
  std::vector<Answer> answers_alone(Runner& run, SchedulerConfig c,
                                    const std::vector<AnswerRequest>& requests) const {
    c.prefix_cache = false;
    RequestLoop alone(run, loaded_->tokenizer, vocabulary(), DType::f32, c);
    std::vector<Answer> answers;
    for (const AnswerRequest& request : requests) answers.push_back(answer(alone, request));
    return answers;
  }
  // After many short answers, short ones are expected: pages run out.
  static void expect_short_answers(RequestLoop& loop) {
    for (int i = 0; i < 80; ++i) answer(loop, {.prompt = {1}, .max_tokens = 1});
  }

  Folder folder_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace braid::golden
