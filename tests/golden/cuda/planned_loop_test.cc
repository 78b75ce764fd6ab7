// Loops over GPUs that keep their own keys alone: tokens stay on the devices, and the text is that
// of steps whose logits come to the host.
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

constexpr int64_t kPagesApart = int64_t{1} << 14;

struct Member {
  int64_t tokens;  // of the prompt
  int group;       // -1: divided over the ranks
  SamplingParams sampling;
};

struct Text {
  std::vector<std::vector<SampledToken>> steps;  // each [S]
  LoopStats stats;
};

// Prompts of all sequences in a step each, all last tokens in another, then a loop: by masks, which
// allow all tokens, on the host.
Text text_of(Runner& runner, const std::vector<Member>& members, int64_t limit,
             std::span<const uint32_t> mask = {}) {
  std::vector<std::vector<int32_t>> prompts, pages;
  Batch all(kPageSize);
  LoopRequest request{.limit = limit};
  for (size_t s = 0; s < members.size(); ++s) {
    const Member& m = members[s];
    prompts.push_back(ids(m.tokens, static_cast<int32_t>(s)));
    pages.emplace_back();
    for (int64_t i = 0; i * kPageSize < m.tokens + limit; ++i) {
      pages.back().push_back(static_cast<int32_t>(i * std::ssize(members)) +
                             static_cast<int32_t>(s));
    }
  }
  for (size_t s = 0; s < members.size(); ++s) {
    const std::span<const int32_t> prompt = prompts[s];
    Batch batch(kPageSize);
    if (prompt.size() > 1) {
      batch.add(prompt.first(prompt.size() - 1), 0, pages[s], 0, members[s].group);
      runner.step(batch);
    }
    all.add(prompt.last(1), std::ssize(prompt) - 1, pages[s], 1, members[s].group);
    request.sequences.push_back(
        {.prompt = prompt,
         .sampling = members[s].sampling,
         .hold = [&held = pages[s]](int64_t tokens) -> std::span<const int32_t> {
           return std::span(held).first(static_cast<size_t>(ceil_div(tokens, kPageSize)));
         },
         .mask = mask.empty() ? TokenMask() : [mask](std::span<const int32_t>) { return mask; },
         .group = members[s].group});
  }
  runner.step(all);
  Text text;
  const auto loop = runner.loop(std::move(request));
  for (int64_t i = 0; i < limit; ++i) {
    const std::span<const SampledToken> tokens = loop->next();
    text.steps.emplace_back(tokens.begin(), tokens.end());
  }
  text.stats = loop->stats();
  return text;
}

RunnerConfig apart(int ranks) {
  RunnerConfig config = cuda_runner(ranks);
  config.sp = SequenceParallel{.mode = SpMode::ring, .degrees = {}, .apart = true};
  config.cache.pages = config.cache.pages_per_sequence = kPagesApart;
  return config;
}

void expect_equal(const Text& got, const Text& want) {
  for (size_t i = 0; i < want.steps.size(); ++i) {
    for (size_t s = 0; s < want.steps[i].size(); ++s) {
      const SampledToken &a = got.steps[i][s], &b = want.steps[i][s];
      ASSERT_FALSE(a.error) << a.error->what();
      ASSERT_EQ(a.id, b.id) << "token " << i << " of sequence " << s;
      EXPECT_NEAR(a.logprob, b.logprob, 1e-3) << "token " << i << " of sequence " << s;
    }
  }
}

class PlannedLoop : public testing::TestWithParam<const char*> {};

// Sequences fill pages on the way. A second loop begins where the first did, with its plans and
// graphs. Each way has a runner of its own: keys then lie on the same ranks in both.
TEST_P(PlannedLoop, TokensAreThoseOfTheHost) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Folder folder(std::string(GetParam()) + "_planned_loop");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const std::vector<uint32_t> all(
      static_cast<size_t>(ceil_div(loaded.model.config().V, int64_t{32})), ~0u);
  for (int P : {2, 4}) {
    if (cannot_run(P)) continue;
    const SamplingParams greedy{.logprobs = 2},
        repeats_less{.repetition_penalty = 1.3f, .logprobs = 0};
    for (const std::vector<Member>& members : std::vector<std::vector<Member>>{
             {{40, -1, greedy}},                                            // a lone request
             {{40, -1, greedy}, {9, 0, greedy}, {1, P - 1, repeats_less}},  // beside own ones
             {{3, 0, greedy}, {12, 1, repeats_less}},                       // without a divided one
             {{35, -1, repeats_less}, {2, -1, greedy}, {21, -1, greedy}}}) {
      SCOPED_TRACE(fmt::format("{} GPUs, {} sequences", P, members.size()));
      constexpr int64_t kTokens = 40;
      Runner host(loaded.model, apart(P)), device(loaded.model, apart(P));
      for (int i = 0; i < 2; ++i) {
        const Text want = text_of(host, members, kTokens, all);
        EXPECT_EQ(want.stats.steps, 0);
        const Text got = text_of(device, members, kTokens);
        expect_equal(got, want);
        if (HasFatalFailure()) return;
        EXPECT_EQ(got.stats.steps, kTokens - 2) << "behind the prompts' token, and a first step";
        EXPECT_GT(got.stats.launches, 0);
      }
    }
  }
}

// The caller may drop a loop whose next step is under way, and go on with steps.
TEST_P(PlannedLoop, EndsAnywhere) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Folder folder(std::string(GetParam()) + "_planned_end");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  Runner ranks(loaded.model, apart(2)), other(loaded.model, apart(2));
  const std::vector<int32_t> pages = {4, 1, 7}, prompt = ids(20, 3);
  Batch batch(kPageSize);
  batch.add(prompt, 0, pages, 1);
  for (Runner* runner : {&ranks, &other}) runner->step(batch);
  {
    const auto loop = ranks.loop(
        {.sequences = {{.prompt = prompt,
                        .hold = [&](int64_t) { return std::span<const int32_t>(pages); }}},
         .limit = 20});
    for (int i = 0; i < 3; ++i) loop->next();
  }
  Batch next(kPageSize);
  next.add(ids(5, 9), 20, pages, 5);
  expect_alike(ranks, other, next, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, PlannedLoop,
                         testing::Values("llama3_gqa", "mistral_window", "qwen3_qk_norm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::golden
