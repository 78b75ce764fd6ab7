// Which steps of an engine with thinned prompts have sizes that are planned before requests come:
// all but those prompts', and by the plans of an engine that keeps all keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/absent_world.h"
#include "braid/engine/requests/scheduler.h"
#include "braid/engine/step_planners.h"
#include "braid/model/model_shape.h"

namespace braid {
namespace {

constexpr int kGroup = 8;  // ranks of the level

class HashedWorld : public AbsentWorld {
 public:
  using AbsentWorld::AbsentWorld;
  std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside) override {
    for (const Schedule& schedule : planned.schedules) hashes.push_back(hash_of(schedule));
    return AbsentWorld::bind(std::move(planned), beside);
  }
  std::vector<uint64_t> hashes;  // of all plans so far, [plans * ranks]
};

class ThinnedSizes : public ::testing::TestWithParam<int> {
 protected:
  ThinnedSizes() {
    config_.pages = 2048;
    config_.page_size = kPageSize;
    config_.max_context = 8192;
    config_.max_running = 16;
    config_.max_step_tokens = 4096;
    config_.max_rows = config_.max_running + config_.max_scored;
    config_.approximate_from = kGroup;
    config_.shared_tokens = 512;
  }

  std::unique_ptr<StepPlanner> planner(World& world, bool thins) const {
    RunnerConfig c{.tp = GetParam(),
                   .cache = {.pages = config_.pages,
                             .page_size = config_.page_size,
                             .pages_per_sequence = config_.max_context / config_.page_size,
                             .kv_dtype = DType::bf16,
                             .activations = DType::bf16}};
    if (thins) c.thinning = {.keep = {0.5}, .groups = {kGroup}};
    return make_step_planner(model_, c, meshes_of(model_, c), world);
  }
  std::vector<StepSize> sizes() const {
    return step_sizes({.sequences = config_.max_running,
                       .tokens = config_.most_shared(),
                       .rows = config_.max_rows,
                       .ranks = GetParam()});
  }
  static ModelShape shape() {
    ModelShape shape =
        read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
    shape.config.layers = 4;
    shape.config.windows.resize(4);
    return shape;
  }

  const Model model_{shape(), 1};
  SchedulerConfig config_;
  const NullBackend backend_;
};

TEST_P(ThinnedSizes, PlansAreThoseWithAllKeys) {
  HashedWorld all(backend_.catalog()), fewer(backend_.catalog());
  const auto exact = planner(all, false), thins = planner(fewer, true);
  int decodes = 0;
  for (const StepSize& size : sizes()) {
    exact->plan_size(size, config_.max_context);
    thins->plan_size(size, config_.max_context);
    decodes += size.decode ? 1 : 0;
  }
  EXPECT_GE(decodes, 4);
  EXPECT_EQ(all.hashes.size(), sizes().size() * static_cast<size_t>(GetParam()));
  EXPECT_EQ(fewer.hashes, all.hashes);
  EXPECT_GE(std::set(all.hashes.begin(), all.hashes.end()).size(), sizes().size());
}

// Random requests of all kinds: answers, exact, scored and short prompts find a size in every step,
// also beside each other. A prompt with thinned keys finds none, in any of its steps.
TEST_P(ThinnedSizes, ThinnedPromptsAloneHaveNone) {
  const uint32_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  AbsentWorld world(backend_.catalog());
  const auto exact = planner(world, false), thins = planner(world, true);
  const std::vector<StepSize> sizes = this->sizes();
  Scheduler scheduler(config_);
  constexpr RequestId kRequests = 60;
  RequestId last = 0;
  int prepared = 0, decodes = 0, late = 0, without_levels = 0;
  for (RequestId open = 0; last < kRequests || open > 0;) {
    if (last < kRequests && pick(0, 2) == 0) {
      const int64_t tokens = pick(0, 3) == 0 ? pick(1, kGroup - 1) : pick(kGroup, 6000);
      const int64_t kind = pick(0, 3);
      scheduler.submit({.id = ++last,
                        .ids = std::vector<int32_t>(tokens, 0),
                        .max_tokens = pick(1, 40),
                        .salt = std::to_string(last),
                        .exact = kind == 1,
                        .score_prompt = kind == 2});
      ++open;
    }
    const Step step = scheduler.next(0);
    if (step.empty()) continue;
    Batch batch(config_.page_size);
    bool thinned = false;
    for (const StepRow& row : step.rows) {
      batch.add(std::vector<int32_t>(row.end - row.begin), row.begin, scheduler.pages_of(row.id),
                row.scored);
      thinned |= scheduler.approximates(row.id);
    }
    batch.set_exact(!thinned);
    const bool prompt = thinned && step.decodes == 0 && batch.extents().token >= kGroup;
    const auto size = exact->size_for(sizes, batch);
    EXPECT_EQ(thins->size_for(sizes, batch), prompt ? std::nullopt : size);
    if (prompt) {
      EXPECT_EQ(step.rows.size(), 1u);
      ++late;
      without_levels += size ? 1 : 0;
    } else {
      EXPECT_TRUE(size) << step.tokens << " tokens of " << step.rows.size() << " sequences";
      ++prepared;
      decodes += step.decodes == std::ssize(step.rows) ? 1 : 0;
    }
    scheduler.step_put(step);
    const auto sampled = std::ranges::count_if(step.rows, &StepRow::sample);
    scheduler.step_done(step, std::vector<int32_t>(sampled, 1));
    for (const StepRow& row : step.rows) {
      const Sequence& sequence = scheduler.sequence(row.id);
      if (std::ranges::count(sequence.ids, 1) < sequence.max_tokens) continue;
      scheduler.end(row.id);
      --open;
    }
  }
  EXPECT_GT(late, 20);
  EXPECT_GT(prepared, 2 * late);
  EXPECT_GT(decodes, 20);
  EXPECT_GT(without_levels, 0) << "short prompts are thinned, too";
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThinnedSizes, testing::Values(1, 2));

}  // namespace
}  // namespace braid
