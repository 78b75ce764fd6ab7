// How a prompt is divided, chosen by simulation on devices that are not there.
#include "braid/engine/prompt_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "braid/base/math.h"
#include "braid/engine/step_fit.h"
#include "unit/io/temp_folder.h"

namespace braid {
namespace {

constexpr double kActivationBytes = 2;

std::string config(const char* name) {
  return fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name);
}

PromptRequest request(int64_t tokens, const std::string& machines = "1x8") {
  return {.config = config("llama-3-8b-1m"), .machines = machines, .tokens = tokens};
}

TEST(PromptPlan, LongPromptsTakeMoreRanks) {
  int ranks = 0;
  for (int64_t tokens : {16, 1024, 131072}) {
    const PromptPlan plan = plan_prompt(request(tokens));
    EXPECT_GE(plan.taken().ranks(), ranks) << tokens;
    ranks = plan.taken().ranks();
  }
  EXPECT_EQ(ranks, 8);
}

// Nothing that fits is faster by more than the tie, and nothing with fewer ranks is within it.
TEST(PromptPlan, TakesTheLeastTimeAndThenTheFewestRanks) {
  for (int64_t tokens : {200, 5000, 40000}) {
    const PromptPlan plan = plan_prompt(request(tokens, "2x4"));
    const PromptCandidate& taken = plan.taken();
    ASSERT_TRUE(taken.refused.empty());
    for (const PromptCandidate& c : plan.candidates) {
      if (!c.refused.empty()) continue;
      EXPECT_LE(taken.seconds, c.seconds * (1 + kPromptTie)) << c.name();
      if (c.ranks() < taken.ranks()) {
        EXPECT_GT(c.seconds, taken.seconds) << c.name();
      }
    }
  }
}

// What the simulation counts on the wire is what the formulas say, but for the head, whose logits
// of one token are gathered. Ranks beyond the KV heads hold copies: GLM has 4, or 2.
TEST(PromptPlan, TrafficIsThatOfTheFormulas) {
  struct Model {
    const char* name;
    int layers, kv_heads;
  };
  constexpr double kTokens = 16384, kC = 4096, kQ = 4096, kHead = 128;
  for (const Model& m :
       {Model{"llama-3-8b-1m", 32, 8}, Model{"glm-4-9b-1m", 40, 4}, Model{"glm-4-9b", 40, 2}}) {
    PromptRequest r = request(int64_t{16384});
    r.config = config(m.name);
    const PromptPlan plan = plan_prompt(r);
    int seen = 0;
    for (const PromptCandidate& c : plan.candidates) {
      const int n = c.ranks();
      if (c.seconds == 0 || n == 1) continue;
      double want = 0;
      if (c.division == PromptDivision::weights) {
        want = weights_elements(kTokens, kC, n);
      } else if (c.mesh->mode == SpMode::ring) {
        want = ring_elements(kTokens, m.kv_heads * kHead, n);
      } else {
        want = heads_elements(kTokens, kQ, m.kv_heads * kHead, m.kv_heads, n);
      }
      EXPECT_NEAR(c.wire_bytes / m.layers / kActivationBytes / want, 1, 0.01)
          << m.name << ", " << c.name() << " over " << n;
      ++seen;
    }
    EXPECT_GE(seen, 9) << "three divisions over 2, 4 and 8 ranks";
  }
}

// Over all 8 ranks.
struct Divisions {
  const PromptCandidate *weights = nullptr, *ring = nullptr, *heads = nullptr;
};

Divisions over_all(const PromptPlan& plan) {
  Divisions found;
  for (const PromptCandidate& c : plan.candidates) {
    if (c.ranks() < 8) continue;
    if (c.division == PromptDivision::weights) {
      found.weights = &c;
    } else {
      (c.mesh->mode == SpMode::ring ? found.ring : found.heads) = &c;
    }
  }
  return found;
}

// A copy of the H200's profile, as a file.
class ChangedProfile {
 public:
  explicit ChangedProfile(const std::function<void(Profile&)>& change) {
    Profile profile = load_profile("h200");
    change(profile);
    save_profile(profile, path());
  }
  std::string path() const { return folder_.path("changed.json"); }

 private:
  const test::TempFolder folder_;
};

// By elements heads are cheapest, then the ring, then weights. At 4,096 tokens so are their times.
// Short prompts wait for launches and messages, of which modes have more; long ones hide the
// ring's keys, and no heads.
TEST(PromptPlan, PartsFromTheFormulasWhereSizesDoNotCount) {
  EXPECT_LT(heads_elements(1, 4096, 1024, 8, 8), ring_elements(1, 1024, 8));
  EXPECT_LT(ring_elements(1, 1024, 8), weights_elements(1, 4096, 8));
  const PromptPlan alike = plan_prompt(request(4096));
  EXPECT_LT(over_all(alike).heads->seconds, over_all(alike).ring->seconds);
  EXPECT_LT(over_all(alike).ring->seconds, over_all(alike).weights->seconds);

  const PromptPlan brief = plan_prompt(request(512));
  const Divisions at_512 = over_all(brief);
  EXPECT_EQ(&brief.taken(), at_512.weights);
  EXPECT_LT(at_512.ring->wire_bytes, at_512.weights->wire_bytes / 6);
  EXPECT_GT(at_512.ring->seconds, 1.1 * at_512.weights->seconds);
  const ChangedProfile at_once([](Profile& profile) {
    profile.launch_seconds = profile.step_seconds = profile.collective_seconds = 0;
    profile.machine_link.latency_seconds = 0;
  });
  PromptRequest r = request(512);
  r.profile = at_once.path();
  const PromptPlan free_of_them = plan_prompt(r);
  EXPECT_LT(over_all(free_of_them).ring->seconds, 1.05 * over_all(free_of_them).weights->seconds);

  const PromptPlan large = plan_prompt(request(32768));
  const Divisions at_32k = over_all(large);
  EXPECT_EQ(&large.taken(), at_32k.ring);
  EXPECT_LT(at_32k.heads->wire_bytes, at_32k.ring->wire_bytes);
  const ChangedProfile fast([](Profile& profile) { profile.machine_link.bytes_per_second *= 1e3; });
  r = request(32768);
  r.profile = fast.path();
  const PromptPlan unbound = plan_prompt(r);
  EXPECT_GT(over_all(unbound).ring->seconds, 0.999 * at_32k.ring->seconds) << "hidden already";
  EXPECT_LT(over_all(unbound).heads->seconds, 0.98 * at_32k.heads->seconds);
}

// That the refusal of a request names.
int64_t longest_prompt(const PromptRequest& request) {
  try {
    plan_prompt(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    const std::string text = error.what(), before = "the longest that fits has ";
    const size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << text;
    return at < text.size() ? std::stoll(text.substr(at + before.size())) : 0;
  }
  ADD_FAILURE() << request.tokens << " tokens fit";
  return 0;
}

TEST(PromptPlan, MemoryRefuses) {
  PromptRequest small = request(8192);
  small.memory_gb = 12;  // the weights are 16 GB
  const PromptPlan plan = plan_prompt(small);
  EXPECT_EQ(plan.taken().division, PromptDivision::weights);
  EXPECT_NE(plan.candidates[0].refused.find("GB a rank, there are 12.0"), std::string::npos)
      << plan.candidates[0].refused;
  small.memory_gb = 1;
  try {
    plan_prompt(small);
    FAIL() << "it does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    const std::string text = error.what();
    EXPECT_NE(text.find("does not fit 1x8 devices of 1 GB"), std::string::npos) << text;
    EXPECT_NE(text.find("; no prompt fits"), std::string::npos) << text;
  }
}

// Of 700,000 tokens each of two ranks holds half the keys; six steps have room for activations.
TEST(PromptPlan, LongPromptsGoInSteps) {
  PromptRequest r = request(700000, "1x2");
  r.profile = "h100";
  const PromptPlan plan = plan_prompt(r);
  ASSERT_EQ(plan.candidates.size(), 4u);
  EXPECT_EQ(plan.taken().division, PromptDivision::tokens);
  EXPECT_EQ(plan.taken().steps, 6);
  EXPECT_EQ(plan.candidates[0].steps, 11);
  EXPECT_EQ(plan.candidates[0].bytes.keys, 700032.0 * 131072) << "whole pages";
  EXPECT_EQ(plan.taken().bytes.keys, 350016.0 * 131072);
  EXPECT_GT(plan.taken().bytes.activations, 0);
  EXPECT_LT(plan.taken().bytes.activations, 65536 * 110e3);
}

// Weights are 16.1 GB, and keys of 65,536 tokens 8.6: less room for activations, 53 KB a token,
// means more steps of half the tokens, then no room at all.
TEST(PromptPlan, LessMemoryMeansSmallerSteps) {
  PromptRequest r = request(65536, "1x1");
  std::vector<int64_t> steps;
  for (double gb : {80.0, 28.0, 27.0, 26.0, 25.2, 25.0, 24.85}) {
    r.memory_gb = gb;
    const PromptPlan plan = plan_prompt(r);
    steps.push_back(plan.taken().steps);
    EXPECT_EQ(plan.taken().rank_tokens * plan.taken().steps, 65536) << gb;
    EXPECT_LE(plan.taken().bytes.all(), 1e9 * gb);
    EXPECT_NEAR(plan.taken().bytes.activations / static_cast<double>(plan.taken().rank_tokens),
                53e3, 2e3)
        << gb;
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 2, 4, 8, 16, 32}));
  r.memory_gb = 24.7;
  EXPECT_EQ(longest_prompt(r) % 64, 0);
  PromptRequest fitting = r;
  fitting.tokens = longest_prompt(r);
  EXPECT_LT(fitting.tokens, 65536);
  EXPECT_GT(fitting.tokens, 64000);
  EXPECT_EQ(plan_prompt(fitting).taken().rank_tokens, kLeastRankTokens);
  fitting.tokens += 1;
  EXPECT_EQ(longest_prompt(fitting), fitting.tokens - 1);
}

// Divided weights are 4.8 GB on each of four ranks, and a token's keys 32,768 bytes.
TEST(PromptPlan, AllRanksHoldTheLongestPrompt) {
  PromptRequest r = request(120000, "1x4");
  r.memory_gb = 8;
  const int64_t longest = longest_prompt(r);
  EXPECT_GT(longest, (8e9 - 5.1e9) / 32768);
  EXPECT_LT(longest, (8e9 - 4.8e9) / 32768);
  r.tokens = longest;
  const PromptCandidate taken = plan_prompt(r).taken();
  EXPECT_EQ(taken.ranks(), 4);
  EXPECT_EQ(taken.division, PromptDivision::weights);
  EXPECT_EQ(taken.steps, ceil_div(longest, taken.rank_tokens));
}

// Times between simulated steps are linear: of many steps the sum is that of all, to 1%.
TEST(PromptPlan, ManyStepsArePricedByAFew) {
  PromptRequest r = request(45 * 2048 + 100, "1x1");
  r.memory_gb = 16.1 + 45 * 2048 * 131072e-9 + 0.15;
  const PromptCandidate all = plan_prompt(r).taken();
  ASSERT_EQ(all.rank_tokens, kLeastRankTokens);
  EXPECT_EQ(all.steps, 46);
  double seconds = 0;
  for (int i = 0; i < 46; ++i) {
    PromptRequest step = request(i < 45 ? 2048 : 100, "1x1");
    step.cached = int64_t{i} * 2048;
    seconds += plan_prompt(step).taken().seconds;
  }
  EXPECT_NEAR(all.seconds / seconds, 1, 0.01);
}

TEST(PromptPlan, StepsAddUp) {
  const PromptCandidate whole = plan_prompt(request(131072, "1x1")).taken();
  PromptCandidate parts = plan_prompt(request(65536, "1x1")).taken();
  PromptRequest rest = request(65536, "1x1");
  rest.cached = 65536;
  parts.add(plan_prompt(rest).taken());
  EXPECT_EQ(whole.steps, 2);
  EXPECT_EQ(parts.steps, 2);
  EXPECT_NEAR(whole.seconds, parts.seconds, 1e-9);
  EXPECT_EQ(whole.bytes.all(), parts.bytes.all());
}

// Divided weights are read sooner than whole weights beside a part of the keys. A token reads all
// of a rank's weights and keys at least.
TEST(PromptPlan, NamesTheFastestDecode) {
  PromptRequest r = request(131072, "1x4");
  r.profile = "h100";
  const PromptPlan plan = plan_prompt(r);
  const PromptCandidate& fastest = plan.decodes_fastest();
  EXPECT_EQ(fastest.division, PromptDivision::weights);
  EXPECT_EQ(fastest.ranks(), 4);
  const double stream = load_profile("h100").memory_bytes_per_second;
  for (const PromptCandidate& c : plan.candidates) {
    EXPECT_GE(c.token_seconds, fastest.token_seconds) << c.name();
    const double keys = 131072.0 * 131072 / c.ranks();
    EXPECT_GT(c.token_seconds, (c.bytes.weights + keys) / stream * 0.9) << c.name();
    if (c.ranks() > 1) {
      EXPECT_LT(c.token_seconds, plan.candidates[0].token_seconds) << c.name();
    }
  }
}

// A ring takes 3, 5, 6 or 7 of eight ranks: keys go round, each rank has its share, more ranks are
// faster, and no choice is slower than without them but by the tie.
TEST(PromptPlan, RingsTakeAnyNumberOfRanks) {
  for (int64_t tokens : {2000, 140000}) {
    PromptRequest r = request(tokens);
    const PromptPlan plan = plan_prompt(r);
    std::map<int, const PromptCandidate*> rings;
    double least = std::numeric_limits<double>::infinity();  // of ranks that divide the machine
    for (const PromptCandidate& c : plan.candidates) {
      if (c.mesh && c.mesh->mode == SpMode::ring && c.ranks() > 1) rings[c.ranks()] = &c;
      if (8 % c.ranks() == 0) least = std::min(least, c.seconds);
    }
    EXPECT_LE(plan.taken().seconds, (1 + kPromptTie) * least);
    ASSERT_EQ(rings.size(), 7u);
    for (const auto& [n, ring] : rings) {
      const auto want = ring_elements(static_cast<double>(tokens), 1024, n);
      if (ring->steps == 1) {  // later steps send earlier keys anew
        EXPECT_NEAR(ring->wire_bytes / 32 / kActivationBytes / want, 1, 0.01) << n;
      }
      if (tokens < 131072) continue;
      EXPECT_NEAR(ring->bytes.keys / (140000.0 * 131072), 1.0 / n, 1e-3) << n;
      EXPECT_LT(ring->seconds * n, 1.05 * plan.candidates[0].seconds) << n;
      EXPECT_GT(ring->seconds * n, 0.95 * plan.candidates[0].seconds) << n;
    }
  }
}

// 32 query heads do not divide over 33 ranks; a ring does not mind.
TEST(PromptPlan, RulesThatForbidACandidateAreItsReason) {
  const PromptPlan plan = plan_prompt(request(4096, "1x33"));
  int refused = 0;
  for (const PromptCandidate& c : plan.candidates) {
    if (c.ranks() == 33 && !c.refused.empty()) ++refused;
  }
  EXPECT_GE(refused, 1);
  EXPECT_TRUE(plan.taken().refused.empty());
}

TEST(PromptPlan, WrongRequestsNameTheOption) {
  const auto expect = [](PromptRequest r, const std::string& text) {
    try {
      plan_prompt(r);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect(request(0), "--tokens is 0");
  PromptRequest r = request(8);
  r.cached = -1;
  expect(r, "--depth is -1");
  r = request(8);
  r.memory_gb = 0;
  expect(r, "--memory is 0 GB");
  r = request(1048576 - 99);
  r.cached = 100;
  expect(r, "--tokens is 1048477 behind --depth 100: the model has 1048576 positions");
  r = request(8193);
  r.config = config("llama-3-8b");
  expect(r, "--tokens is 8193: the model has 8192 positions");
  r = request(8, "3");
  expect(r, "3");
  expect({.tokens = 8}, "wanted is one of -m and --config");
}

}  // namespace
}  // namespace braid
