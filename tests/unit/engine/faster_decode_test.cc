// Ranks that divide prompts as each length asks say when divided weights would decode a lone answer
// faster, by the times that `plan prompt` gives both.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/absent_world.h"
#include "braid/engine/prompt_plan.h"
#include "braid/engine/step_planners.h"
#include "braid/model/model_shape.h"

namespace braid {
namespace {

constexpr int64_t kTokens = 65536;

class FasterDecode : public ::testing::Test {
 protected:
  // The lines about a lone answer behind a prompt, of two GPUs or CPUs that are not there.
  std::vector<std::string> lines(const Profile& profile, bool gpus) const {
    const NullBackend backend;
    AbsentWorld world(backend.catalog(), gpus);
    RunnerConfig config{.tp = 2,
                        .sp = SequenceParallel{},
                        .cache = {.pages = kTokens / kPageSize + 1,
                                  .page_size = kPageSize,
                                  .pages_per_sequence = kTokens / kPageSize + 1,
                                  .kv_dtype = DType::bf16,
                                  .activations = DType::bf16},
                        .schedule = "sequence_parallel",
                        .profile = profile};
    const auto planner = make_step_planner(model_, config, meshes_of(model_, config), world);
    EXPECT_THAT(said(*planner), testing::IsEmpty()) << "before any prompt";
    std::vector<int32_t> pages(static_cast<size_t>(config.cache.pages));
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    Batch batch(kPageSize);
    batch.add(std::vector<int32_t>(kTokens), 0, pages, 1);
    planner->prepare(batch);
    return said(*planner);
  }
  static std::vector<std::string> said(const StepPlanner& planner) {
    std::vector<std::string> found;
    for (const std::string& line : planner.explain()) {
      if (line.starts_with("a lone answer's token")) found.push_back(line);
    }
    return found;
  }

  const std::string config_ = std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json";
  const Model model_{read_model_shape(config_), 1};
};

TEST_F(FasterDecode, IsSaidWithBothTimes) {
  const PromptPlan plan =
      plan_prompt({.config = config_, .profile = "h200", .machines = "1x2", .tokens = kTokens});
  const auto ms = [&](const std::string& name) {
    for (const PromptCandidate& c : plan.candidates) {
      if (c.name().starts_with(name)) return fmt::format("{:.3f} ms", 1e3 * c.token_seconds);
    }
    return std::string("none");
  };
  for (const bool gpus : {false, true}) {
    EXPECT_THAT(lines(load_profile("h200"), gpus),
                testing::ElementsAre(fmt::format(
                    "a lone answer's token behind 65536 keys, simulated: {} by {}; divided weights "
                    "(--tp 2) would take {}",
                    gpus ? ms("one rank") : ms("tokens divided, ring"),
                    gpus ? "rank 0 alone" : "keys on all ranks", ms("weights divided"))));
  }
}

// Sums of divided products wait for messages, twice a layer; a rank alone waits for none.
TEST_F(FasterDecode, IsNotSaidWhereMessagesAreLate) {
  Profile late = load_profile("h200");
  late.machine_link.latency_seconds = 1e-3;
  EXPECT_THAT(lines(late, true), testing::IsEmpty());
}

}  // namespace
}  // namespace braid
