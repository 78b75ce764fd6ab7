// Random sequence-parallel plans: the verifier accepts them, and nothing that lets ranks race. What
// is a race says a graph of events that shares no code with it (happens_before.h).
#include <gtest/gtest.h>

#include <random>

#include "any_phases.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/verifier.h"
#include "unit/schedule/happens_before.h"
#include "unit/schedule/names_catalog.h"

namespace braid::testing_schedule {
namespace {

constexpr int kPlans = 200;

// Any task that is ready, on any stream: the same choice each time it is asked.
struct AnyOrder : OpScheduler {
  uint64_t seed = 0;
  std::string name() const override { return "any order"; }
  void partition(PartitionRules& rules) const override {
    rules.mark(kRingTag);
    rules.mark(kLinkTag);
    rules.split_func({"segment_attention"});
  }
  void schedule(ScheduleContext& ctx) const override {
    std::mt19937_64 rng(seed);
    while (!ctx.done()) {
      const auto ready = ctx.ready(static_cast<int>(rng() % ctx.micro_batches()));
      if (ready.empty()) continue;
      ctx.execute({ready[rng() % ready.size()]}, {.stream = kStreams[rng() % kNumStreams]});
    }
  }
};

struct SequencePlan : Plan {
  std::string name;
  PlanRequest request;
  std::shared_ptr<const OpScheduler> strategy;

  // Schedules of the Programs as they are now.
  void plan_again() {
    const NamesCatalog catalog;
    request.catalogs = {&catalog};
    plan_schedules(*this, *strategy, request);
  }
  void verify() const { braid::verify(*this); }
  const Op& op(int launch) const {
    return schedules[0].op(programs[0], schedules[0].launches[static_cast<size_t>(launch)]);
  }
};

SequencePlan random_plan(std::mt19937_64& rng) {
  const auto one_of = [&](const auto& list) { return list[rng() % std::size(list)]; };
  const char* const machines[] = {"1x2", "1x3", "1x4", "2x1", "2x2", "4x1", "2x3", "2x4", "4x2"};
  Topology topology = parse_topology(one_of(machines));
  topology.mapped = rng() % 3 != 0;
  std::vector<SequenceMesh> meshes;
  for (SpMode mode : kSpModes) {
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, 8)) meshes.push_back(mesh);
  }
  const SequenceMesh mesh = one_of(meshes);
  const int P = mesh.ranks(), M = 1 + static_cast<int>(rng() % 2);
  SequenceAttention a{.batch = M, .q_heads = 8, .kv_heads = rng() % 2 ? 4 : 8, .head_dim = 4};
  const int64_t joint = rng() % 2 ? 3 : 0, rows = 1 + static_cast<int64_t>(rng() % 60);
  a.joint_q = a.joint_kv = joint;
  const auto layout = [&] {
    if (rng() % 3 == 0) return zigzag_layout(rows, P, joint);
    if (rng() % 2 == 0) return even_layout(rows, P, joint);
    std::vector<int64_t> lengths;
    for (int p = 0; p < P; ++p) lengths.push_back(static_cast<int64_t>(rng() % 9));
    return contiguous_layout(lengths, joint);
  };
  a.q = layout();
  a.kv = rng() % 2 ? a.q : layout();
  const bool stages = rng() % 3 != 0;
  SequencePlan made;
  made.programs = attention_programs(
      a, mesh, {.kernels = stages ? Kernels{&any_phases} : Kernels{}, .least_rows = 1});
  made.request = {.catalogs = {},
                  .micro_batches = std::vector<MicroBatch>(static_cast<size_t>(M),
                                                           {.capacity = {.sequence = 1}}),
                  .topology = topology,
                  .price = {}};
  if (rng() % 3 == 0) {
    auto any = std::make_shared<AnyOrder>();
    any->seed = rng();
    made.strategy = any;
  } else {
    const char* const names[] = {"sequence_parallel", "sequence_parallel", "overlap", "nanoflow",
                                 "tokenweave"};
    made.strategy = find_strategy(one_of(names));
  }
  made.name = fmt::format("{} {} on {}x{}, {} tokens, {} micro-batches, {}{}", to_string(mesh.mode),
                          to_string(mesh.degrees), topology.machines, topology.devices, rows, M,
                          made.strategy->name(), stages ? ", in one call" : "");
  made.plan_again();
  return made;
}

// The message of the refusal; empty: accepted.
std::string refusal(const std::function<void()>& step) {
  try {
    step();
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
}

// The message names an op and a rule.
bool names_rule(const std::string& message) {
  const char* const rules[] = {"(RAW)",         "(WAR)",         "(WAW)",
                               "waits inside:", "result parts:", "memory:"};
  return message.find(" at '") != std::string::npos &&
         std::ranges::any_of(
             rules, [&](const char* rule) { return message.find(rule) != std::string::npos; });
}

struct Seeded {
  uint64_t seed = std::random_device{}();
  std::mt19937_64 rng{seed};
};

TEST(VerifierSequence, PlansDoNotRace) {
  Seeded random;
  SCOPED_TRACE(fmt::format("seed {}", random.seed));
  for (int n = 0; n < kPlans; ++n) {
    const SequencePlan made = random_plan(random.rng);
    ASSERT_EQ(HappensBefore(made.programs, made.schedules).race(), "") << made.name;
  }
}

// One wait of a launch: before it begins, inside, or for early results.
struct WaitOf {
  size_t launch = 0;
  size_t index = 0;
  size_t kind = 0;  // 0 before it begins, 1 inside, 2 for early results
};

std::vector<WaitOf> waits_of(const Schedule& schedule) {
  std::vector<WaitOf> all;
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const std::vector<Wait>& waits = schedule.launches[i].waits;
    for (size_t w = 0; w < waits.size(); ++w) {
      const bool early = waits[w].partial();
      all.push_back({i, w, early ? 2u : waits[w].inside() ? 1u : 0u});
    }
  }
  return all;
}

// Takes the wait out on all ranks, and moves later phases of the launch up; what was waited for.
int drop(std::vector<Schedule>& schedules, const WaitOf& dropped) {
  Wait wait;
  for (Schedule& s : schedules) {
    std::vector<Wait>& waits = s.launches[dropped.launch].waits;
    wait = waits[dropped.index];
    waits.erase(waits.begin() + static_cast<int64_t>(dropped.index));
    for (Wait& other : waits) other.phase -= other.phase > wait.phase && wait.inside() ? 1 : 0;
  }
  return wait.launch;
}

// What became of a plan that lost waits of a launch: refused with the op and the rule, or accepted
// because other waits imply the lost ones. Anything else is a failure.
bool refused_or_implied(const SequencePlan& made, int launch, const std::vector<int>& awaited) {
  const std::string message = refusal([&] { made.verify(); });
  if (!message.empty()) {
    EXPECT_TRUE(names_rule(message)) << message;
    return true;
  }
  HappensBefore order(made.programs, made.schedules);
  for (size_t r = 0; r < made.programs.size(); ++r) {
    for (int other : awaited) {
      EXPECT_TRUE(order.before(r, other, launch))
          << made.name << ": launch " << launch << " (" << made.op(launch).def->kind
          << ") no longer waits for " << other << " (" << made.op(other).def->kind << ")";
    }
  }
  EXPECT_EQ(order.race(), "") << made.name;
  return false;
}

TEST(VerifierSequence, EveryDroppedWaitIsRefusedUnlessOthersImplyIt) {
  Seeded random;
  SCOPED_TRACE(fmt::format("seed {}", random.seed));
  int implied = 0, sampled = 0, race = 0;
  std::array<int, 4> refused{};  // by kind; all waits inside together
  for (int n = 0; n < kPlans && !testing::Test::HasFailure(); ++n) {
    const SequencePlan good = random_plan(random.rng);
    for (const WaitOf& wait : waits_of(good.schedules[0])) {
      SequencePlan made = good;
      const int awaited = drop(made.schedules, wait);
      if (!refused_or_implied(made, static_cast<int>(wait.launch), {awaited})) {
        ++implied;
        continue;
      }
      ++refused[wait.kind];
      if (random.rng() % 8 != 0) continue;
      ++sampled;
      race += HappensBefore(made.programs, made.schedules).race().empty() ? 0 : 1;
    }
    for (size_t i = 0; i < good.schedules[0].launches.size(); ++i) {
      std::vector<int> inside;
      for (const Wait& wait : good.schedules[0].launches[i].waits) {
        if (wait.inside()) inside.push_back(wait.launch);
      }
      if (inside.empty()) continue;
      SequencePlan made = good;
      for (Schedule& s : made.schedules) std::erase_if(s.launches[i].waits, &Wait::inside);
      refused[3] += refused_or_implied(made, static_cast<int>(i), inside) ? 1 : 0;
    }
  }
  const int all = refused[0] + refused[1] + refused[2];
  fmt::print(
      "refused: {} waits, {} inside, {} early, {} with all inside gone; implied by others: {}; "
      "of {} refused, {} race\n",
      refused[0], refused[1], refused[2], refused[3], implied, sampled, race);
  for (int count : refused) EXPECT_GT(count, 0);
  EXPECT_GT(all, 10 * implied);
  EXPECT_GT(race, sampled / 4) << "much of what is refused does harm";
}

// Whether other ranks read or write copies of the value, or count pushes in it.
bool is_remote(const SequencePlan& plan, ValueId id) {
  for (const Program& program : plan.programs) {
    for (const Op& op : program.ops) {
      if (op.def == &ops::kSegmentAttention) {
        const auto& a = op.attrs.as<ops::SegmentAttentionAttrs>();
        for (const ops::QSegment& s : a.q) {
          if (a.finalize && s.owner >= 0 && s.rows > 0 && op.inputs[3] == id) return true;
        }
      }
      if (op.def != &ops::kPull && op.def != &ops::kPush) continue;
      const auto& a = op.attrs.as<ops::MoveAttrs>();
      if (op.def == &ops::kPush && op.inputs[0] == id && !a.peers().empty()) return true;
      for (const ops::Move& m : a.moves) {
        const auto remote = static_cast<size_t>(op.def == &ops::kPull ? m.src : m.dst);
        if (op.inputs[remote] == id) return true;
      }
    }
  }
  return false;
}

// A Program whose syncs lack a value that other ranks access is refused when it is planned.
TEST(VerifierSequence, EveryValueLeftOutOfASyncIsRefused) {
  Seeded random;
  SCOPED_TRACE(fmt::format("seed {}", random.seed));
  int refused = 0;
  for (int n = 0; n < kPlans; ++n) {
    const SequencePlan good = random_plan(random.rng);
    for (size_t o = 0; o < good.programs[0].ops.size(); ++o) {
      if (good.programs[0].ops[o].def != &ops::kSync) continue;
      const std::vector<ValueId> inputs = good.programs[0].ops[o].inputs;
      for (size_t k = 0; k < inputs.size(); ++k) {
        if (inputs[k] == kNoValue) continue;
        // The first has to be there: another that is kept stands in for it.
        const bool last_kept = inputs.size() == ops::kSyncFirstClosed + ops::kSyncMaxClosed;
        if (k == 0 && last_kept) continue;
        SequencePlan made = good;
        for (Program& program : made.programs) {
          program.ops[o].inputs[k] = k == 0 ? inputs.back() : kNoValue;
        }
        const std::string message = refusal([&] { made.plan_again(); });
        if (message.empty()) {
          ASSERT_FALSE(is_remote(good, inputs[k])) << made.name << ": op " << o << ", input " << k;
          ASSERT_EQ(HappensBefore(made.programs, made.schedules).race(), "") << made.name;
          continue;
        }
        EXPECT_TRUE(names_rule(message)) << message;
        const bool rule = message.find(": R1 (") != std::string::npos ||
                          message.find(": R2 (") != std::string::npos ||
                          message.find(": R3 (") != std::string::npos;
        EXPECT_TRUE(rule) << message;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, kPlans);
}

// One change to a Schedule, or to all.
void damage(SequencePlan& plan, std::mt19937_64& rng) {
  const uint64_t kind = rng() % 7, seed = rng();
  const bool everywhere = rng() % 4 != 0;
  const size_t only = rng() % plan.schedules.size();
  for (size_t r = 0; r < plan.schedules.size(); ++r) {
    if (!everywhere && r != only) continue;
    std::mt19937_64 same(seed);
    Schedule& s = plan.schedules[r];
    const size_t n = s.launches.size(), i = same() % n, v = same() % s.memory.value_offset.size();
    Launch& l = s.launches[i];
    if (kind == 0) {
      const std::vector<WaitOf> waits = waits_of(s);
      if (waits.empty()) continue;
      const WaitOf w = waits[same() % waits.size()];
      std::vector<Schedule> one{s};
      drop(one, w);
      s = one[0];
    } else if (kind == 1) {
      l.stream = kStreams[same() % kNumStreams];
    } else if (kind == 2) {
      for (Wait& wait : l.waits) {
        if (!wait.inside() && !wait.partial()) wait.launch = static_cast<int>(same() % n);
      }
    } else if (kind == 3) {
      if (s.memory.value_offset[v] >= 0) {
        s.memory.value_offset[v] += (static_cast<int64_t>(same() % 9) - 4) * 64;
      }
    } else if (kind == 4) {
      s.memory.value_offset[v] = s.memory.value_offset[same() % s.memory.value_offset.size()];
    } else if (kind == 5) {
      std::erase_if(l.waits, [](const Wait& w) { return w.partial(); });
      const int early = static_cast<int>(same() % n) - 1;
      const auto inside = std::ranges::find_if(l.waits, &Wait::inside);
      if (early >= 0) l.waits.insert(inside, {early, 0, 0});
    } else if (i > 0) {  // two neighbours in the other order, and what names them
      std::swap(s.launches[i - 1], s.launches[i]);
      const int a = static_cast<int>(i) - 1, b = static_cast<int>(i);
      const auto renumber = [&](int& x) { x = x == a ? b : x == b ? a : x; };
      for (Launch& other : s.launches) {
        for (Wait& wait : other.waits) renumber(wait.launch);
      }
    }
  }
}

TEST(VerifierSequence, AcceptsOnlyWhatDoesNotRace) {
  Seeded random;
  SCOPED_TRACE(fmt::format("seed {}", random.seed));
  int taken = 0, refused = 0;
  for (int n = 0; n < kPlans / 4; ++n) {
    const SequencePlan good = random_plan(random.rng);
    for (int round = 0; round < 20; ++round) {
      SequencePlan made = good;
      damage(made, random.rng);
      if (!refusal([&] { made.verify(); }).empty()) {
        ++refused;
        continue;
      }
      ++taken;
      ASSERT_EQ(HappensBefore(made.programs, made.schedules).race(), "") << made.name;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, taken / 4);
}

}  // namespace
}  // namespace braid::testing_schedule
