// Keys that stay from one request to the next: the same tokens as if all were computed anew.
#include "braid/engine/generate.h"

#include <gtest/gtest.h>

#include <fstream>
#include "braid/engine/loaded_model.h"
#include "braid/engine/sampling_defaults.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

class ConversationTest : public testing::Test {
 protected:
  ConversationTest() : folder_("conversation"), golden_(load_golden("smollm2")) {
    write_hf_folder(load_random_model("smollm2"), folder_.path());
    loaded_ = std::make_unique<LoadedModel>(folder_.path().string());
  }

  // Turns that each begin with all before, of one generator, with and without the conversation's
  // keys.
  void expect_same_tokens(const EngineConfig& config) {
    Generator generator(loaded_->model, loaded_->tokenizer, config);
    Generator fresh(loaded_->model, loaded_->tokenizer, config);
    Conversation conversation = generator.conversation();
    std::vector<int32_t> prompt = golden_.cases.back().prompt;
    for (int turn = 0; turn < 4; ++turn) {
      Request request{.prompt = prompt, .max_tokens = 5, .ignore_eos = true};
      const Generation want = fresh.generate(request);
      EXPECT_EQ(want.reused, 0);
      request.conversation = &conversation;
      const Generation got = generator.generate(request);
      EXPECT_EQ(got.ids, want.ids) << "turn " << turn;
      // All but the last token that was made, and what the turn adds.
      const auto before = static_cast<int64_t>(prompt.size());
      EXPECT_EQ(got.reused, turn > 0 ? before - 4 : 0) << "turn " << turn;
      prompt.insert(prompt.end(), got.ids.begin(), got.ids.end());
      for (int32_t id : {7, 8, 9}) prompt.push_back(id);
    }
    // Another beginning: what differs is computed.
    prompt[2] = prompt[2] == 3 ? 4 : 3;
    Request request{.prompt = prompt, .max_tokens = 5, .ignore_eos = true};
    const Generation want = fresh.generate(request);
    request.conversation = &conversation;
    const Generation got = generator.generate(request);
    EXPECT_EQ(got.reused, 2);
    EXPECT_EQ(got.ids, want.ids);
    // The same prompt again: its last token is computed.
    const Generation again = generator.generate(request);
    EXPECT_EQ(again.reused, static_cast<int64_t>(prompt.size()) - 1);
    EXPECT_EQ(again.ids, want.ids);
  }

  Folder folder_;
  Golden golden_;
  std::unique_ptr<LoadedModel> loaded_;
};

TEST_F(ConversationTest, OnOneRank) {
  expect_same_tokens({.threads = 2});
  expect_same_tokens({.threads = 1, .prefill_chunk = 3});
}

TEST_F(ConversationTest, WithTensorParallelism) {
  expect_same_tokens({.tp = 2, .threads = 1});
}

TEST_F(ConversationTest, WhereRanksDivideThePrompt) {
  expect_same_tokens({.tp = 2, .sp = SequenceParallel{.mode = SpMode::ring}, .threads = 1});
}

TEST_F(ConversationTest, PagesAreGivenBack) {
  const EngineConfig config = {.threads = 1, .max_context = 64};
  Generator generator(loaded_->model, loaded_->tokenizer, config);
  Request request{.prompt = golden_.cases[0].prompt, .max_tokens = 2, .ignore_eos = true};
  const Generation want = generator.generate(request);
  for (int i = 0; i < 3; ++i) {
    Conversation conversation = generator.conversation();
    request.conversation = &conversation;
    EXPECT_EQ(generator.generate(request).ids, want.ids);
  }
  request.conversation = nullptr;
  EXPECT_EQ(generator.generate(request).ids, want.ids);
}

TEST_F(ConversationTest, APromptThatIsStoppedKeepsWhatIsDone) {
  Generator generator(loaded_->model, loaded_->tokenizer, {.threads = 1, .prefill_chunk = 3});
  Conversation conversation = generator.conversation();
  Request request{.prompt = golden_.cases.back().prompt, .max_tokens = 3, .ignore_eos = true};
  ASSERT_GT(request.prompt.size(), 7u);
  const Generation want = generator.generate(request);
  request.conversation = &conversation;
  std::vector<int64_t> told;
  request.on_prompt = [&](int64_t done) {
    told.push_back(done);
    return done < 6;
  };
  const Generation stopped = generator.generate(request);
  EXPECT_TRUE(stopped.ids.empty());
  EXPECT_EQ(told, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(conversation.ids().size(), 6u);
  request.on_prompt = {};
  const Generation got = generator.generate(request);
  EXPECT_EQ(got.reused, 6);
  EXPECT_EQ(got.ids, want.ids);
}

TEST(SamplingDefaultsTest, AreWhatTheMakersRecommend) {
  Folder folder("sampling_defaults");
  write_hf_folder(load_random_model("smollm2"), folder.path());
  const auto with = [&](const std::string& json, bool chat) {
    std::ofstream(folder.path() / "generation_config.json") << json;
    return default_sampling(open_model_file(folder.path().string()), chat);
  };
  EXPECT_EQ(with("{}", false).temperature, 0);
  EXPECT_FLOAT_EQ(with("{}", true).temperature, 0.7f);
  EXPECT_EQ(with(R"({"do_sample": false, "temperature": 0.6})", true).temperature, 0);
  for (const bool chat : {false, true}) {
    const SamplingParams p =
        with(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.05,
                 "repetition_penalty": 1.1, "eos_token_id": 2})",
             chat);
    EXPECT_FLOAT_EQ(p.temperature, 0.6f);
    EXPECT_EQ(p.top_k, 20);
    EXPECT_FLOAT_EQ(p.top_p, 0.9f);
    EXPECT_FLOAT_EQ(p.min_p, 0.05f);
    EXPECT_FLOAT_EQ(p.repetition_penalty, 1.1f);
  }
  EXPECT_EQ(with(R"({"do_sample": true})", true).temperature, 1) << "as in transformers";
  EXPECT_EQ(with(R"({"temperature": -3, "top_p": 7})", false).temperature, 0)
      << "out of range: left out";
}

}  // namespace
}  // namespace braid::golden
