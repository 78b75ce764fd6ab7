#pragma once

#include <limits>
#include <set>

#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

// Sequences of a batch; some end by errors of their own.
namespace braid::golden {

// The least id that is in no prompt and in no answer of the golden cases.
inline int32_t unused_token(const Golden& golden) {
  std::set<int32_t> used;
  for (const Case& c : golden.cases) {
    used.insert(c.prompt.begin(), c.prompt.end());
    used.insert(c.greedy.begin(), c.greedy.end());
  }
  int32_t id = 0;
  while (used.contains(id)) ++id;
  return id;
}

// The model, but all results from `token` are NaN. The head is not tied.
inline RandomModel poisoned_by(const std::string& name, int32_t token) {
  RandomModel model = load_random_model(name);
  model.edit = [token](const TensorSpec& spec, std::span<float> values) {
    if (spec.name != "model.embed_tokens.weight") return;
    const auto width = static_cast<size_t>(spec.shape[1]);
    values[static_cast<size_t>(token) * width + width / 2] =
        std::numeric_limits<float>::quiet_NaN();
  };
  return model;
}

// Each sequence's ids, and the error that ended the sequence.
struct Ended {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> errors;  // "" without error
};

inline Ended run_to_end(Runner& runner, const LoopRequest& request) {
  Ended ended{std::vector<std::vector<int32_t>>(request.sequences.size()),
              std::vector<std::string>(request.sequences.size())};
  const auto loop = runner.loop(request);
  for (int64_t i = 0; i < request.limit; ++i) {
    const std::span<const SampledToken> tokens = loop->next();
    for (size_t s = 0; s < tokens.size(); ++s) {
      if (!tokens[s].error) {
        EXPECT_EQ(ended.errors[s], "") << "an error stays";
        ended.ids[s].push_back(tokens[s].id);
      } else {
        ended.errors[s] = tokens[s].error->what();
      }
    }
  }
  return ended;
}

// On a runner of four sequences, whose model computes NaN from the token `poison`. The first
// prompt holds `poison`, the second answer comes to `poison`, the fourth's mask fails; the third
// goes on as if alone.
// Then sequences without `poison` use the same pages.
inline void expect_errors_of_their_own(Runner& runner, const Golden& golden, int32_t poison,
                                       float temperature) {
  const std::vector<int32_t>& good = golden.cases[0].prompt;
  std::vector<int32_t> bad = good;
  bad[bad.size() / 2] = poison;
  constexpr int64_t kTokens = 7;
  constexpr size_t kForced = 3;  // place of `poison` in the second sequence's answer
  const auto with = [&](LoopRequest request) {
    for (LoopSequence& sequence : request.sequences) {
      sequence.sampling = {.temperature = temperature, .top_p = 0.9f, .seed = 11};
    }
    return request;
  };
  Texts clean(runner, {good, good, good, good});
  clean.prefill();
  const Ended want = run_to_end(runner, with(clean.request(kTokens)));
  EXPECT_EQ(want.errors, std::vector<std::string>(4));

  Texts texts(runner, {bad, good, good, good});
  texts.prefill();
  LoopRequest request = with(texts.request(kTokens));
  const auto words = static_cast<size_t>(ceil_div(golden.vocab, 32));
  std::vector<uint32_t> all(words, ~0u), one(words, 0u);
  one[static_cast<size_t>(poison / 32)] = 1u << (poison % 32);
  request.sequences[1].mask = [&](std::span<const int32_t> generated) {
    return std::span<const uint32_t>(generated.size() == kForced ? one : all);
  };
  request.sequences[3].mask = [&](std::span<const int32_t> generated) {
    if (generated.size() == 2) fail(ErrorCode::kUnsupported, "no mask after two");
    return std::span<const uint32_t>(all);
  };
  const Ended got = run_to_end(runner, request);
  const auto after = [&](size_t step) {
    return fmt::format("step {}, after {} tokens: the model's logits are not numbers", step,
                       good.size() + step - 1);
  };
  EXPECT_TRUE(got.errors[0].starts_with(after(1))) << got.errors[0];
  EXPECT_TRUE(got.ids[0].empty());
  EXPECT_TRUE(got.errors[1].starts_with(after(kForced + 2))) << got.errors[1];
  std::vector<int32_t> forced(want.ids[1].begin(), want.ids[1].begin() + kForced);
  forced.push_back(poison);
  EXPECT_EQ(got.ids[1], forced);
  EXPECT_EQ(got.errors[2], "");
  EXPECT_EQ(got.ids[2], want.ids[2]);
  EXPECT_EQ(got.errors[3], "no mask after two");
  EXPECT_EQ(got.ids[3], std::vector(want.ids[3].begin(), want.ids[3].begin() + 2));

  clean.prefill();
  const Ended again = run_to_end(runner, with(clean.request(kTokens)));
  EXPECT_EQ(again.errors, std::vector<std::string>(4));
  EXPECT_EQ(again.ids, want.ids) << "in pages that held what is not a number";
}

}  // namespace braid::golden
