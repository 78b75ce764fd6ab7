// An engine with approximate prompts on GPUs: exact requests stand beside, each token of each
// answer is one that a runner of this kind alone chooses, and pages serve their own kind.
#include <gmock/gmock.h>

#include <cmath>

#include "braid/engine/engine.h"
#include "golden/support/forced_answers.h"
#include "golden/support/forward.h"
#include "golden/support/level_golden.h"

namespace braid::golden {
namespace {

constexpr int64_t kEnginePage = 64, kContext = 512, kTokens = 12;

struct Division {
  std::string name;
  int ranks = 1;
  std::optional<SequenceParallel> sp;  // none: heads are divided
};

void PrintTo(const Division& d, std::ostream* out) {
  *out << d.name;
}

class ApproximateEngineOnGpus : public testing::TestWithParam<Division> {
 protected:
  void SetUp() override {
    const Division& d = GetParam();
    if (const char* why = cannot_run(d.ranks)) GTEST_SKIP() << why;
    golden_.write(folder_.path());
    loaded_.emplace(folder_.path().string());
    exact_.device = gpus_for(d.ranks);
    exact_.tp = d.ranks;
    exact_.sp = d.sp;
    exact_.threads = 1;
    exact_.max_context = kContext;
    exact_.kv_dtype = DType::bf16;
    limits_.scheduler.max_running = 4;
    for (int i = 0; i < 300; ++i) prompt_.push_back((i * 37 + i / 7 * 11 + 5) % 250);
    Runner f32(loaded_->model, {.cache = {.pages = kPages,
                                          .page_size = kPageSize,
                                          .pages_per_sequence = kPages,
                                          .kv_dtype = DType::f32}});
    const AnswerRequest scored{.prompt = prompt_};
    Rounding rounding;
    rounding.add(loaded_->model, ForcedAnswer(scored, {}, f32));
    tolerance_ = kDraws * rounding.mean();
  }

  // Levels have as many ranks as divide the tokens, or four ranks where none divide.
  EngineConfig thinned() const {
    EngineConfig config = exact_;
    config.thinning = {.keep = {0.4}, .groups = {exact_.sp ? exact_.tp : 4}};
    return config;
  }
  std::unique_ptr<Engine> engine() const {
    return std::make_unique<Engine>(folder_.path().string(), thinned(), limits_);
  }
  AnswerRequest request(size_t tokens, bool exact = false) const {
    AnswerRequest r{.prompt = prompt_,
                    .max_tokens = kTokens,
                    .sampling = {.logprobs = 0},
                    .ignore_eos = true,
                    .list_tokens = true,
                    .exact = exact};
    r.prompt.resize(tokens);
    return r;
  }
  // The logits behind the prompt and behind each token but the last, by a runner of the engine's
  // ranks: the prompt in one step, then token by token.
  Rows alone(const EngineConfig& config, const std::vector<int32_t>& prompt,
             const braid::Answer& answered) const {
    std::vector<int32_t> answer;
    for (const SampledToken& token : answered.tokens) answer.push_back(token.id);
    const EngineConfig all = complete(config, loaded_->model);
    CacheShape cache = cache_shape(all, loaded_->model);
    Runner runner(loaded_->model, runner_config(all, cache));
    std::vector<int32_t> pages;
    KvPages(cache.pages, cache.page_size)
        .reserve(pages, static_cast<int64_t>(prompt.size() + answer.size()));
    Rows rows;
    Batch batch(cache.page_size);
    batch.add(prompt, 0, pages, 1);
    append_rows(runner.run(batch), rows);
    for (size_t i = 0; i + 1 < answer.size(); ++i) {
      batch.clear();
      batch.add(std::span(answer).subspan(i, 1), static_cast<int64_t>(prompt.size() + i), pages, 1);
      append_rows(runner.run(batch), rows);
    }
    return rows;
  }
  // How far an answer's log-probabilities are from those of these rows: the squares' mean.
  static double squares(const Rows& rows, const braid::Answer& answer) {
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampledToken& token = answer.tokens[i];
      const double want = rows[i][static_cast<size_t>(token.id)] - log_sum_exp(rows[i]);
      sum += (token.logprob - want) * (token.logprob - want);
    }
    return sum / static_cast<double>(rows.size());
  }

  const LevelGolden golden_ = load_level_golden();
  const Folder folder_{"approximate_engine_on_gpus"};
  std::optional<LoadedModel> loaded_;
  EngineConfig exact_;
  RequestLimits limits_;
  std::vector<int32_t> prompt_;
  double tolerance_ = 0;
};

TEST_P(ApproximateEngineOnGpus, ManyRequestsOfBothKindsAreAnsweredAsAlone) {
  limits_.scheduler.prefix_cache = false;
  const auto engine = this->engine();
  std::vector<AnswerRequest> requests;
  for (size_t i = 0; i < 9; ++i) {
    requests.push_back(request(i % 4 == 3 ? 3 : 300 - 23 * i, i % 3 == 1));
  }
  const std::vector<braid::Answer> answers = engine->generate_all(requests);
  double own = 0, dense = 0;
  int thinned_prompts = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {} of {} tokens", i, requests[i].prompt.size()));
    ASSERT_FALSE(answers[i].end.error) << answers[i].end.error->what();
    ASSERT_EQ(std::ssize(answers[i].tokens), kTokens);
    const bool thins = !requests[i].exact && requests[i].prompt.size() > 64;
    EXPECT_EQ(answers[i].end.approximate != nullptr, thins);
    const double off =
        squares(alone(thins ? thinned() : exact_, requests[i].prompt, answers[i]), answers[i]);
    EXPECT_LE(std::sqrt(off), tolerance_);
    if (!thins) continue;
    ++thinned_prompts;
    own += off;
    dense += squares(alone(exact_, requests[i].prompt, answers[i]), answers[i]);
  }
  ASSERT_EQ(thinned_prompts, 5);
  fmt::print("{}: {:.4f} from runners alone, {:.4f} from dense prompts, {:.4f} at most\n",
             GetParam().name, std::sqrt(own / 5), std::sqrt(dense / 5), tolerance_);
  EXPECT_GT(std::sqrt(dense / 5), tolerance_) << "dense prompts would have passed";
  EXPECT_EQ(engine->stats().scheduler.pages.held, 0);
}

// Twice: approximate pages serve approximate prompts, exact ones exact prompts, and the answers
// from an exact prompt's pages are those of an engine without levels.
TEST_P(ApproximateEngineOnGpus, PagesServeTheirOwnKind) {
  const auto engine = this->engine();
  const int64_t whole = std::ssize(prompt_) / kEnginePage * kEnginePage;
  for (const bool again : {false, true}) {
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", exact ? "exact" : "approximate", again ? ", again" : ""));
      const braid::Answer answer = engine->generate(request(prompt_.size(), exact));
      ASSERT_FALSE(answer.end.error) << answer.end.error->what();
      ASSERT_EQ(std::ssize(answer.tokens), kTokens);
      EXPECT_EQ(answer.end.cached_tokens, again ? whole : 0);
      EXPECT_EQ(answer.end.approximate != nullptr, !exact);
      EXPECT_EQ(engine->stats().scheduler.approximate_passed, exact || again ? whole : 0);
      if (!exact && again) continue;  // behind cached keys another prompt is thinned
      const Rows rows = alone(exact ? exact_ : thinned(), prompt_, answer);
      EXPECT_LE(std::sqrt(squares(rows, answer)), tolerance_);
    }
  }
  EXPECT_EQ(engine->stats().scheduler.pages.held, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ApproximateEngineOnGpus,
                         testing::Values(Division{"one", 1, {}}, Division{"heads", 3, {}},
                                         Division{"ring", 2, SequenceParallel{SpMode::ring, {}}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::golden
