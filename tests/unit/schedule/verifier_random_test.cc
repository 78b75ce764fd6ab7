// Random damage to good Schedules: what the verifier accepts is harmless in every order.
#include "unit/schedule/step_oracle.h"

namespace braid::testing_schedule {
namespace {

struct Setup {
  std::string_view name;
  PlanConfig plan;
};
const Setup kSetups[] = {
    {"one rank, one batch", {.ranks = 1, .micro_batches = 1, .layers = 1}},
    {"one rank, two continuing", {.ranks = 1, .micro_batches = 2, .layers = 1}},
    {"one rank, three apart", {.ranks = 1, .micro_batches = 3, .continues = false, .layers = 1}},
    {"one rank, not fused", {.ranks = 1, .micro_batches = 2, .layers = 1, .fused = false}},
    {"two ranks", {.ranks = 2, .micro_batches = 2, .layers = 1}},
    {"two ranks, divided", {.ranks = 2, .micro_batches = 2, .sharded = true, .layers = 1}},
    {"three ranks, divided", {.ranks = 3, .micro_batches = 3, .sharded = true, .layers = 1}},
};

class Damage {
 public:
  Damage(Planned& plan, std::mt19937_64& rng) : plan_(plan), rng_(rng) {}

  // One random change; its name.
  std::string apply() {
    const uint64_t kind = rng_() % 10;
    const bool memory = kind >= 5 && kind <= 7;
    const bool everywhere = rng_() % (memory ? 10 : 3) != 0;
    const size_t only = rng_() % plan_.schedules.size();
    const uint64_t seed = rng_();
    std::string what;
    for (size_t r = 0; r < plan_.schedules.size(); ++r) {
      if (!everywhere && r != only) continue;
      std::mt19937_64 same(seed);
      what = change(kind, plan_.programs[r], plan_.schedules[r], same);
    }
    return what + (everywhere ? "" : " on one rank");
  }

 private:
  static std::string change(uint64_t kind, const Program& program, Schedule& s,
                            std::mt19937_64& rng) {
    auto& launches = s.launches;
    const size_t n = launches.size();
    const auto i = static_cast<size_t>(rng() % n);
    switch (kind) {
      case 0: {
        for (size_t k = 0; k < n; ++k) {
          auto& waits = launches[(i + k) % n].waits;
          if (waits.empty()) continue;
          const size_t w = rng() % waits.size();
          if (rng() % 2 && --waits[w].launch >= 0) return "wait for the launch before";
          waits.erase(waits.begin() + static_cast<int64_t>(w));
          return "drop a wait";
        }
        return "nothing";
      }
      case 1:
        launches[i].waits.push_back({static_cast<int>(rng() % n)});
        return "add a wait";
      case 2:
      case 3: {  // move a launch; waits follow
        size_t j = kind == 2 ? (i + 1) % n : static_cast<size_t>(rng() % n);
        std::vector<int> order(n);
        for (size_t k = 0; k < n; ++k) order[k] = static_cast<int>(k);
        const int moved = order[i];
        order.erase(order.begin() + static_cast<int64_t>(i));
        order.insert(order.begin() + static_cast<int64_t>(j), moved);
        std::vector<int> to(n);
        for (size_t k = 0; k < n; ++k) to[static_cast<size_t>(order[k])] = static_cast<int>(k);
        std::vector<Launch> next;
        std::vector<int64_t> workspace;
        for (int old : order) {
          next.push_back(launches[static_cast<size_t>(old)]);
          for (Wait& wait : next.back().waits) wait.launch = to[static_cast<size_t>(wait.launch)];
          workspace.push_back(s.memory.workspace_offset[static_cast<size_t>(old)]);
        }
        launches = next;
        s.memory.workspace_offset = workspace;
        return "move a launch";
      }
      case 4:
        launches[i].stream = kStreams[rng() % kNumStreams];
        return "another stream";
      case 5: {
        auto& offsets = s.memory.value_offset;
        const auto v = static_cast<size_t>(rng() % program.values.size());
        const auto M = s.micro_batches.size();
        const int64_t by = (static_cast<int64_t>(rng() % 41) - 20) * 64;
        for (size_t mb = 0; mb < M; ++mb) {
          if (offsets[v * M + mb] >= 0) offsets[v * M + mb] += by;
        }
        return "shift a value";
      }
      case 6: {
        auto& offsets = s.memory.value_offset;
        offsets[rng() % offsets.size()] = offsets[rng() % offsets.size()];
        return "a value in another's place";
      }
      case 7: {
        const size_t v = static_cast<size_t>(rng() % program.values.size());
        s.memory.merged[v] = !s.memory.merged[v];
        return "flip merged";
      }
      case 8: {
        auto& offset = s.memory.workspace_offset[i];
        if (offset >= 0) offset = static_cast<int64_t>(rng() % 100) * 64;
        return "scratch elsewhere";
      }
      default:
        if (rng() % 2) launches[i].num_micro_batches += rng() % 2 ? 1 : -1;
        if (rng() % 2) launches[i].micro_batch += rng() % 2 ? 1 : -1;
        return "other micro-batches";
    }
  }

  Planned& plan_;
  std::mt19937_64& rng_;
};

bool accepted(const Planned& plan) {
  try {
    plan.verify();
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return false;
  }
}

class VerifierRandom : public testing::TestWithParam<Setup> {};

TEST_P(VerifierRandom, GoodSchedulesAreHarmless) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (const TestStrategy& strategy : {three_streams(), merging(), stream_each()}) {
    const Planned plan = planned(strategy, GetParam().plan);
    for (int k = 0; k < 3; ++k) EXPECT_EQ(StepOracle(plan, rng, k == 0).hazard(), "");
  }
}

// The waits that a context records are all needed, and no more than needed.
TEST_P(VerifierRandom, EveryDroppedWaitIsRefusedAndHarms) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (const TestStrategy& strategy : {three_streams(), merging(), stream_each()}) {
    const Planned good = planned(strategy, GetParam().plan);
    for (size_t i = 0; i < good.schedules[0].launches.size(); ++i) {
      for (size_t w = 0; w < good.schedules[0].launches[i].waits.size(); ++w) {
        Planned plan = good;
        for (Schedule& s : plan.schedules) {
          auto& waits = s.launches[i].waits;
          waits.erase(waits.begin() + static_cast<int64_t>(w));
        }
        EXPECT_FALSE(accepted(plan)) << "wait " << w << " of launch " << i;
        EXPECT_NE(StepOracle(plan, rng, true).hazard(), "") << "wait " << w << " of launch " << i;
      }
    }
  }
}

TEST_P(VerifierRandom, AcceptsOnlyWhatIsHarmless) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  int taken = 0, refused = 0, harmless = 0;
  const int rounds = 400 / GetParam().plan.ranks / GetParam().plan.micro_batches;
  for (const TestStrategy& strategy : {three_streams(), merging(), stream_each()}) {
    const Planned good = planned(strategy, GetParam().plan);
    for (int round = 0; round < rounds; ++round) {
      Planned plan = good;
      const std::string what = Damage(plan, rng).apply();
      const bool ok = accepted(plan);
      ++(ok ? taken : refused);
      if (!ok && round % 4 != 0) continue;
      const std::string hazard = StepOracle(plan, rng, round % 2 == 0).hazard();
      if (ok) {
        ASSERT_EQ(hazard, "") << what << " was accepted";
      } else {
        harmless += hazard.empty() ? 1 : 0;
      }
    }
  }
  RecordProperty("accepted", taken);
  RecordProperty("refused", refused);
  RecordProperty("refused_and_harmless_of_a_quarter", harmless);
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, taken);
  EXPECT_LT(harmless, refused / 4) << "most of what is refused does harm";
}

INSTANTIATE_TEST_SUITE_P(Setups, VerifierRandom, testing::ValuesIn(kSetups), [](const auto& info) {
  std::string name(info.param.name);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace braid::testing_schedule
