// What `--sp auto` takes for a prompt.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "any_phases.h"
#include "braid/backend/null/null_backend.h"
#include "braid/engine/mesh_choice.h"
#include "braid/engine/prompt_choice.h"
#include "braid/engine/prompt_plan.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kMost = 65536, kPageSize = 64;

class Choice {
 public:
  // With a layer of Llama-3-8B on GPUs of a machine; kernels wait inside like those of `like`.
  Choice(int ranks, const KernelCatalog* like, const Profile& profile = load_profile("h200"))
      : Choice(Topology{.devices = ranks}, like, profile) {}
  Choice(const Topology& all, const KernelCatalog* like, const Profile& profile, int layers = 1,
         const std::optional<KeyLevels>& levels = {})
      : backend_(like), profile_(profile) {
    shape_ = read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
    shape_.config.layers = layers;
    shape_.config.windows.resize(layers);
    const CacheShape cache{.pages = kMost / kPageSize,
                           .page_size = kPageSize,
                           .pages_per_sequence = kMost / kPageSize,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    std::vector<SequenceMesh> meshes{sequence_mesh(SpMode::ring, Topology{}, 1)};
    for (const Topology& part : parts_of(all)) {
      if (part.ranks() == 1) continue;
      if (all.devices % part.devices !=
          0) {  // as in a run, where levels want equal numbers of parts
        if (!levels) meshes.push_back(sequence_mesh(SpMode::ring, part, shape_.config.Hq));
        continue;
      }
      for (SequenceMesh& mesh : meshes_of({}, part, shape_.config.Hq)) {
        if (!levels || mesh.mode == SpMode::ring) meshes.push_back(std::move(mesh));
      }
    }
    for (const SequenceMesh& mesh : meshes) {
      planners_.push_back(std::make_unique<const ForwardPlanner>(
          [this](const ForwardShape& s) { return shape_.forward(s); }, cache,
          std::vector(static_cast<size_t>(mesh.ranks()), &backend_.catalog()), mesh.topology, mesh,
          std::nullopt, levels));
    }
    forget();
  }
  void forget(bool exact = false, int64_t step_bytes = 0) {
    choice_.emplace(planners_, strategy_, profile_, kMost, exact, step_bytes);
  }

  // Simulated seconds of each way, at this very length.
  std::vector<double> seconds(int64_t tokens) const {
    std::vector<double> all;
    for (const auto& p : planners_) {
      const CostModel cost(profile_, p->topology());
      all.push_back(tokens_candidate(*p, *strategy_, tokens, 0, cost).seconds);
    }
    const ForwardPlanner& last = *planners_.back();
    const CostModel cost(profile_, last.topology());
    for (const auto& strategy : weights_strategies(*strategy_)) {
      all.push_back(weights_candidate(last, *strategy, tokens, 0, cost).seconds);
    }
    return all;
  }

  const SequenceMesh& choose(int64_t tokens, int64_t cached = 0, bool alone = true) {
    return planners_.at(choose_way(tokens, cached, alone))->mesh();
  }
  int ranks(int64_t tokens, int64_t cached, bool alone) {
    const size_t way = choose_way(tokens, cached, alone);
    return planners_[std::min(way, planners_.size() - 1)]->ranks();
  }
  bool divides_weights(int64_t tokens, int64_t cached = 0) {
    return choose_way(tokens, cached, true) >= planners_.size();
  }
  size_t choose_way(int64_t tokens, int64_t cached = 0, bool alone = true) {
    return choice_->choose(tokens, cached, [alone](int ranks) { return alone || ranks > 1; });
  }
  std::vector<std::string> explain() const { return choice_->explain(); }

 private:
  ModelShape shape_;
  NullBackend backend_;
  const Profile profile_;
  const std::shared_ptr<const OpScheduler> strategy_ = find_strategy("sequence_parallel");
  PromptChoice::Planners planners_;
  std::optional<PromptChoice> choice_;
};

// A prompt of 480 tokens a rank, by stages, is too short for calls over parts of the keys. One call
// that takes them as they come is not, and hides what ulysses shows.
TEST(PromptChoice, PricesTheCallsThatTheKernelsTake) {
  EXPECT_EQ(Choice(8, nullptr).choose(3840).mode, SpMode::ulysses);
  EXPECT_EQ(Choice(8, &any_phases).choose(3840).mode, SpMode::torus);
}

// Of 512 tokens a rank, too few to hide three pulls that a host starts one after the other, four
// H100 were fastest as ulysses.
TEST(PromptChoice, CountsTheAnswersOfPulls) {
  Profile h100 = load_profile("h100");
  EXPECT_EQ(Choice(4, &any_phases, h100).choose(2048).mode, SpMode::ulysses);
  EXPECT_EQ(Choice(4, &any_phases, h100).choose(32768).mode, SpMode::ring);
  h100.pull_seconds = 0;
  EXPECT_EQ(Choice(4, &any_phases, h100).choose(2048).mode, SpMode::ring);
}

// Of few tokens a rank, reading whole weights bounds every mode; links that are slow make sums cost
// more than that. Behind cached keys products stay whole.
TEST(PromptChoice, DividesProductsOfShortPrompts) {
  Profile h100 = load_profile("h100");
  Choice fast(4, &any_phases, h100);
  EXPECT_TRUE(fast.divides_weights(512));
  EXPECT_FALSE(fast.divides_weights(32768));
  EXPECT_FALSE(fast.divides_weights(512, 1));
  h100.machine_link.bytes_per_second /= 20;
  Choice slow(4, &any_phases, h100);
  EXPECT_FALSE(slow.divides_weights(512));
  for (const std::string& line : fast.explain()) {
    const bool cached = line.find("behind 1:") < line.size();
    EXPECT_LT(line.find(cached ? "weights divided, sequence_parallel refused: 1 earlier keys lie"
                               : "; weights divided, sequence_parallel "),
              line.size())
        << line;
    EXPECT_EQ(line.find("refused") < line.size(), cached) << line;
  }
}

// Products divide with the residual whole on each rank, or in parts: sum and norm are then a single
// kernel over a rank's own tokens.
TEST(PromptChoice, OffersTheResidualInParts) {
  Choice choice(4, &any_phases, load_profile("h100"));
  EXPECT_TRUE(choice.divides_weights(512));
  for (const std::string& line : choice.explain()) {
    for (const char* name :
         {"; weights divided, sequence_parallel ", "; weights divided, token_sharded "}) {
      EXPECT_LT(line.find(name), line.size()) << line;
    }
  }
}

// Steps have the length that all ranks' memory allows in some mode: a way that wants more than
// those and than the memory is refused.
TEST(PromptChoice, RefusesWaysWithoutRoomForActivations) {
  Choice choice(4, &any_phases, load_profile("h100"));
  ASSERT_TRUE(choice.divides_weights(512));
  choice.forget(false, 1);
  EXPECT_FALSE(choice.divides_weights(512));
  EXPECT_EQ(choice.choose(512).ranks(), 4) << "as many tokens a rank as steps count on";
  for (const std::string& line : choice.explain()) {
    for (const char* way : {"one rank refused: wants ",
                            "; weights divided, sequence_parallel "
                            "refused: wants "}) {
      EXPECT_LT(line.find(way), line.size()) << line;
    }
    EXPECT_LT(line.find(" MB of activations a rank, there are "), line.size()) << line;
  }
  choice.forget(false, int64_t{1} << 40);
  EXPECT_TRUE(choice.divides_weights(512));
  EXPECT_EQ(choice.explain().back().find("refused"), std::string::npos);
}

// Over a slow link between machines the ranks of one machine are fastest, and first.
TEST(PromptChoice, TakesPartsOfTheRanks) {
  Profile h100 = load_profile("h100");
  h100.cluster_link.bytes_per_second = 1e8;
  Choice choice(Topology{.machines = 2, .devices = 2}, nullptr, h100);
  EXPECT_EQ(choice.choose(4096).ranks(), 2);
  EXPECT_EQ(choice.choose(4096).topology.machines, 1);
  EXPECT_EQ(Choice(4, nullptr, h100).choose(4096).ranks(), 4);
}

// 1.05 times the best is the most for each length, whichever prompts came before. 1,024 tokens
// divide their heads where 520 divide products; at 633 and 802 tokens times bend.
TEST(PromptChoice, EachLengthTakesANearlyBestWayInAnyOrder) {
  constexpr double kMostOverBest = 1.05;
  const std::vector<int64_t> lengths{1024, 520,  512,  583,  633,  700,  802,  900, 1100,
                                     1417, 1947, 2500, 3300, 4097, 5320, 6544, 8192};
  for (const char* profile : {"h100", "h200", "a100"}) {
    for (int ranks : {2, 4, 8}) {
      Choice choice(Topology{.devices = ranks}, nullptr, load_profile(profile), 2);
      std::vector<size_t> ways;
      for (int64_t tokens : lengths) {
        ways.push_back(choice.choose_way(tokens));
        const std::vector<double> seconds = choice.seconds(tokens);
        EXPECT_LE(seconds.at(ways.back()), kMostOverBest * std::ranges::min(seconds))
            << tokens << " tokens, " << ranks << " ranks, " << profile;
      }
      choice.forget();
      for (size_t i = lengths.size(); i-- > 0;) {
        EXPECT_EQ(choice.choose_way(lengths[i]), ways[i]) << lengths[i] << " in reverse";
      }
    }
  }
}

// With thinned keys a candidate's time is its plan's, of fewer pairs: less than the exact one's by
// what the pairs save. Exact prompts are priced as without levels.
TEST(PromptChoice, PricesThinnedPromptsByTheirPairs) {
  const Profile h200 = load_profile("h200");
  const Topology four{.devices = 4};
  const KeyLevels levels = key_levels({0.5, 0.25}, {2, 4}, 4);
  Choice dense(four, &any_phases, h200, 6), thin(four, &any_phases, h200, 6, levels);
  const std::vector<double> all = dense.seconds(kMost), kept = thin.seconds(kMost);
  EXPECT_LT(kept.front(), 0.9 * all.front()) << "one rank";
  EXPECT_LT(kept.at(2), 0.95 * *std::ranges::min_element(all)) << "four ranks";
  EXPECT_LT(kept.back(), 0.95 * all.back()) << "weights divided over four ranks";
  EXPECT_EQ(thin.choose_way(kMost), 2u);
  ASSERT_EQ(thin.explain().size(), 1u);
  EXPECT_EQ(thin.explain()[0].find("refused"), std::string::npos) << thin.explain()[0];
  thin.forget(true);
  thin.choose_way(kMost);
  EXPECT_EQ(thin.explain()[0].find("exact prompt of"), 0u);
  EXPECT_EQ(thin.explain()[0].find("refused"), std::string::npos);
}

// A GPU alone and divided products would thin the parts of all ranks, more than a kernel takes.
TEST(PromptChoice, RefusesMorePartsThanAGpuThins) {
  const Topology many{.machines = 4, .devices = 8};
  Profile profile = load_profile("h200");
  const auto refused = [&](int64_t tokens, bool exact) {
    Choice choice(many, &any_phases, profile, 1, key_levels({0.5}, {}, many.ranks()));
    choice.forget(exact);
    choice.choose_way(tokens);
    const std::string line = choice.explain().at(0);
    size_t n = 0;
    for (size_t at = 0; (at = line.find("refused: far keys of 32 ranks' parts", at)) < line.size();
         ++at) {
      ++n;
    }
    return n;
  };
  EXPECT_EQ(refused(4096, false), 1u + 2u) << "one rank, and products in two forms";
  EXPECT_EQ(refused(4000, false), 3u) << "between two priced lengths";
  EXPECT_EQ(refused(31, false), 0u) << "not every part has a token";
  EXPECT_EQ(refused(4096, true), 0u);
  profile.shared_units = true;
  EXPECT_EQ(refused(4096, false), 0u) << "CPU ranks take more";
}

// `braid plan prompt --keep` prices rings over parts and all as a run's choice does. A rank alone
// is planned as a run without `--sp` plans it, which takes 1% less.
TEST(PromptChoice, PlansPriceThinnedPromptsAlike) {
  const Topology four{.devices = 4};
  Choice choice(four, nullptr, load_profile("h200"), 32, key_levels({0.5, 0.25}, {2, 4}, 4));
  const PromptPlan plan =
      plan_prompt({.config = fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA),
                   .machines = "1x4",
                   .tokens = 8000,
                   .thinning = {.keep = {0.5, 0.25}, .groups = {2, 4}}});
  std::vector<double> planned;
  for (const PromptCandidate& c : plan.candidates) {
    if (c.refused.empty() && c.division != PromptDivision::weights) planned.push_back(c.seconds);
  }
  const std::vector<double> chosen = choice.seconds(8000);
  ASSERT_EQ(planned.size(), 3u);
  EXPECT_NEAR(planned[0] / chosen[0], 1, 0.02);
  for (size_t i = 1; i < 3; ++i) EXPECT_NEAR(planned[i] / chosen.at(i), 1, 1e-9) << i;
}

std::vector<std::string> parts(const char* machines) {
  std::vector<std::string> sizes;
  for (const Topology& part : parts_of(parse_topology(machines))) sizes.push_back(sizes_of(part));
  return sizes;
}

TEST(PromptChoice, PartsAreOfADeviceAMachineARackAndRacks) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("3x4"), (Parts{"1x1", "1x2", "1x3", "1x4", "2x4", "3x4"}));
  EXPECT_EQ(parts("2x18"), (Parts{"1x1", "1x2", "1x3", "1x6", "1x9", "1x18", "2x18"}));
  EXPECT_EQ(parts("1x2x2"), (Parts{"1x1", "1x2", "2x2"}));
  EXPECT_EQ(parts("2x1x2"), (Parts{"1x1", "1x2", "2x1x2"}));
  EXPECT_EQ(parts("2x2x1"), (Parts{"1x1", "2x1", "2x2x1"}));
  EXPECT_EQ(parts("3x3x2"), (Parts{"1x1", "1x2", "2x2", "3x2", "2x3x2", "3x3x2"}));
}

// Over slow uplinks the machines of one rack are fastest. An uplink without a speed of its own is a
// link between machines.
TEST(PromptChoice, TakesOneRackBeforeTwo) {
  const Topology racks = parse_topology("2x2x1");
  Profile h100 = load_profile("h100");
  EXPECT_EQ(sizes_of(Choice(racks, nullptr, h100).choose(65536).topology), "2x2x1");
  h100.rack_link = {.bytes_per_second = 1e8, .latency_seconds = 1e-5, .shared_port = true};
  Choice choice(racks, nullptr, h100);
  EXPECT_EQ(sizes_of(choice.choose(65536).topology), "2x1");
  EXPECT_EQ(Choice(parse_topology("4x1"), nullptr, h100).choose(65536).ranks(), 4);
}

TEST(PromptChoice, ExplainsTheLatestLengths) {
  Choice choice(4, nullptr);
  choice.divides_weights(8);
  EXPECT_EQ(choice.choose(65536).ranks(), 4);
  EXPECT_GT(choice.ranks(8, 0, false), 1) << "a rank alone has no room";
  EXPECT_EQ(choice.explain().size(), 2u);
  choice.choose(60000);
  choice.divides_weights(7);
  choice.choose(7, 4096);
  ASSERT_EQ(choice.explain().size(), 5u);
  EXPECT_EQ(choice.explain()[0].find("prompt of 7 tokens behind 4096: "), 0u);
  for (const std::string& line : choice.explain()) {
    EXPECT_LT(line.find("one rank"), line.size()) << line;
    EXPECT_LT(line.find("ulysses"), line.size()) << line;
  }
  for (int64_t tokens = 8; tokens < 40; ++tokens) choice.divides_weights(tokens);
  EXPECT_EQ(choice.explain().size(), 16u);
}

// A sequence ends at kMost tokens, and each rank wants a token.
TEST(PromptChoice, BoundsOfLengthsAreMet) {
  Choice choice(Topology{.devices = 3}, nullptr, load_profile("h200"));
  for (int64_t tokens : {3, 4, 5, 7}) EXPECT_GT(choice.ranks(tokens, 0, true), 0) << tokens;
  EXPECT_EQ(choice.ranks(kMost - 1, 0, true), 3);
  EXPECT_EQ(choice.ranks(1000, kMost - 1000, true), 3);
  EXPECT_EQ(choice.ranks(kMost - 1000, 1000, true), 3);
}

}  // namespace
}  // namespace braid
