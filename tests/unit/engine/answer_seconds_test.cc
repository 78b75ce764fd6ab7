// Steps of answers by the constants of a GPU's decode steps.
#include "braid/engine/answer_seconds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/step_plans.h"
#include "braid/model/model_shape.h"

namespace braid {
namespace {

const std::string kConfig = std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json";
constexpr int64_t kKeys = 2001;

class AnswerSeconds : public ::testing::Test {
 protected:
  ForwardPlanner planner(int ranks, const KernelCatalog& kernels, bool apart = false) const {
    const Topology topology{.devices = ranks};
    const std::vector<const KernelCatalog*> catalogs(static_cast<size_t>(ranks), &kernels);
    const CacheShape cache{.pages = 2048,
                           .page_size = kPageSize,
                           .pages_per_sequence = 2048,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    std::optional<SequenceMesh> mesh;
    if (apart) mesh = sequence_mesh(SpMode::ring, topology, shape_.config.Hq, {});
    return {[this](const ForwardShape& s) { return shape_.forward(s); },
            apart ? rank_cache(cache, ranks) : cache, catalogs, topology, mesh};
  }
  double whole(const std::string& profile, int ranks, int64_t sequences,
               int64_t keys = kKeys) const {
    return answer_seconds(
        backend_.catalog(), [&](const KernelCatalog& k) { return planner(ranks, k); }, sequences,
        keys, CostModel(load_profile(profile), {.devices = ranks}));
  }

  const NullBackend backend_;
  const ModelShape shape_ = read_model_shape(kConfig);
};

TEST_F(AnswerSeconds, AreThoseOfAPlannedDecodeStep) {
  for (int tp : {1, 2}) {
    for (int64_t n : {1, 2, 8}) {
      const StepPlans plan({.config = kConfig,
                            .schedule = "auto",
                            .tokens = 0,
                            .decodes = n,
                            .depth = kKeys - 1,
                            .tp = tp,
                            .decode = "auto",
                            .compare = false});
      EXPECT_NEAR(whole("h200", tp, n) / plan.chosen().step.seconds, 1, 0.01)
          << n << " over " << tp;
    }
    EXPECT_GT(whole("h200", tp, 2), 1.1 * whole("h200", tp, 1)) << "no relay";
  }
}

// Capacities are rounded up: of 9 sequences to 16, of 2 over 8 ranks to 8. Keys are those at hand.
TEST_F(AnswerSeconds, CountTheKeysOfTheSequencesAtHand) {
  constexpr int64_t kMore = 1 << 16;
  const Profile profile = load_profile("h200");
  for (const auto& [ranks, sequences] : {std::pair(1, 9), {1, 3}, {8, 2}, {4, 2}}) {
    const double keys = static_cast<double>(sequences * (kMore - kKeys)) *
                        static_cast<double>(shape_.config.layers * 2 * 2 * shape_.config.D *
                                            shape_.config.Hkv / ranks) /
                        profile.memory_bytes_per_second;
    EXPECT_NEAR(whole("h200", ranks, sequences, kMore) - whole("h200", ranks, sequences), keys,
                0.05 * keys)
        << sequences << " over " << ranks;
  }
}

// Many rows compute for longer than they read.
TEST_F(AnswerSeconds, ManySequencesCompute) {
  const Profile profile = load_profile("h200");
  const double flops = 2 * 256 * 7.5e9;  // of 8 billion weights, but those of the embedding
  EXPECT_GT(whole("h200", 1, 256, 2), flops / profile.find("linear", "")->at(256));
}

// A copy of a profile with another memory is another device.
TEST_F(AnswerSeconds, ConstantsAreOfTheNamedDevice) {
  Profile faster = load_profile("h200");
  EXPECT_TRUE(answer_rates(faster));
  EXPECT_TRUE(answer_rates(load_profile("h100")));
  faster.memory_bytes_per_second *= 2;
  EXPECT_FALSE(answer_rates(faster));
}

// Without measured constants a launch takes what the profile says.
TEST_F(AnswerSeconds, OfOtherDevicesAreTheProfiles) {
  EXPECT_FALSE(answer_rates(load_profile("a100")));
  const CostModel cost(load_profile("a100"), {.devices = 2});
  const double batch = batch_candidate(planner(2, backend_.catalog()), 1, kKeys - 1, cost).seconds;
  EXPECT_EQ(whole("a100", 2, 1), batch);
}

TEST_F(AnswerSeconds, ApartHaveSeamsBetweenTheirLaunches) {
  const ForwardPlanner apart = planner(2, backend_.catalog(), true);
  const Profile measured = load_profile("h200");
  Profile other = measured;
  other.name = "unknown";
  const auto seconds = [&](const Profile& profile) {
    return apart_answer_seconds(apart, 1, kKeys, CostModel(profile, {.devices = 2}));
  };
  const double seam = answer_rates(measured)->panel_seam - measured.launch_seconds;
  const double more = (seconds(measured) - seconds(other)) / seam;
  EXPECT_GT(more, 7 * 32) << "launches of 32 layers";
  EXPECT_LT(more, 16 * 32);
}

}  // namespace
}  // namespace braid
