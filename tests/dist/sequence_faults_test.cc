// Ranks that are late, stop, or die inside sequence-parallel attention, and transfers that take
// random times: the same bits, or an error in time.
#include <thread>

#include "braid/ops/one_sided.h"
#include "dist/sequence_shapes.h"
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

using std::chrono::milliseconds;

SequenceAttention small_attention(int P, int64_t batch = 1) {
  SequenceAttention a{
      .batch = batch, .q_heads = 6, .kv_heads = 3, .head_dim = 8, .scale = 0.3f, .window_right = 0};
  a.joint_q = a.joint_kv = 3;
  a.q = a.kv = zigzag_layout(5 * P + 1, P, 3);
  return a;
}

struct Case {
  SpMode mode;
  const char* topology;
  SpRequest request;
  Kernels kernels = {};
};

const Case kCases[] = {
    {SpMode::ring, "1x3", {}},
    {SpMode::ulysses, "2x2", {}},
    {SpMode::usp, "2x2", {.ring = 2}},
    {SpMode::tas, "2x2", {.ring = 2}},
    {SpMode::torus, "3x1", {.torus = 3, .ulysses = 1, .ring = 1}},
    {SpMode::torus, "2x2", {.torus = 2, .ulysses = 1, .ring = 2}},
    {SpMode::torus, "2x2", {.torus = 2, .ulysses = 2, .ring = 1}},
    {SpMode::ring, "1x3", {}, {&any_phases}},
    {SpMode::torus, "1x3", {.torus = 3, .ulysses = 1, .ring = 1}, {&any_phases}},
    {SpMode::torus, "2x2", {.torus = 2, .ulysses = 2, .ring = 1}, {&any_phases}},
    {SpMode::usp, "2x2", {.ulysses = 1, .ring = 4}},  // hands keys on
};

std::string name_of(const Case& c, const SequenceMesh& mesh) {
  return fmt::format("{} {} on {}{}", to_string(c.mode), to_string(mesh.degrees), c.topology,
                     !c.kernels.empty() ? ", stages in one call" : "");
}

bool same(const WorldResult& a, const WorldResult& b) {
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  for (size_t r = 0; r < a.o.size(); ++r) {
    if (!equal(a.o[r], b.o[r]) || !equal(a.joint_o[r], b.joint_o[r])) return false;
  }
  return true;
}

// The checker of the memory model: half of all puts, gets and signals are held up by a random time,
// in no order but what the fabric promises. Three steps in the same buffers.
TEST(SequenceSchedules, RandomDelaysChangeNoBit) {
  constexpr int kSeeds = 50;
  int schedules = 0;
  for (const Case& c : kCases) {
    const SequenceMesh mesh = sequence_mesh(c.mode, parse_topology(c.topology), 6, c.request);
    SCOPED_TRACE(name_of(c, mesh));
    for (int micro_batches : {1, 2}) {
      const SequenceAttention a = small_attention(mesh.ranks(), micro_batches);
      WorldConfig config{.micro_batches = micro_batches, .steps = 3, .kernels = c.kernels};
      const WorldResult want = run_world(a, mesh, config);
      expect_exact(a, want, config.seed + 2);
      if (HasFatalFailure()) return;
      for (int seed = 0; seed < kSeeds; ++seed) {
        config.strategy = seed % 3 == 2 && micro_batches == 1 ? "sequential" : "sequence_parallel";
        config.links.jitter = fabric::Jitter{static_cast<uint64_t>(seed), seed % 2 ? 5e-4 : 5e-5};
        ASSERT_TRUE(same(run_world(a, mesh, config), want))
            << "jitter seed " << seed << ", " << micro_batches << " micro-batches";
        ++schedules;
      }
    }
  }
  RecordProperty("schedules", schedules);
}

// The checker sees what it is for: without one of its meetings, a Program computes something else.
void expect_found(const Case& c, const char* name,
                  const std::function<bool(const ops::SyncAttrs&)>& which) {
  const SequenceMesh mesh = sequence_mesh(c.mode, parse_topology(c.topology), 6, c.request);
  const SequenceAttention a = small_attention(mesh.ranks());
  WorldConfig config{.steps = 3};
  const WorldResult want = run_world(a, mesh, config);
  config.adjust = [&](fabric::Endpoint&, cpu::KernelTable& table) {
    cpu::Kernel kernel = table.at("sync");
    kernel.bind = [&which, bind = kernel.bind](const cpu::LaunchArgs& args) -> cpu::BoundKernel {
      if (which(args.call.attrs<ops::SyncAttrs>())) return [](const cpu::Team&) {};
      return bind(args);
    };
    table.add("sync", kernel);
  };
  bool found = false;
  for (int seed = 0; seed < 40 && !found; ++seed) {
    config.links.jitter = fabric::Jitter{static_cast<uint64_t>(seed), 2e-3};
    found = !same(run_world(a, mesh, config), want);
  }
  EXPECT_TRUE(found) << name_of(c, mesh) << ": no delay shows that the " << name
                     << " sync is missing";
}

TEST(SequenceSchedules, RandomDelaysFindAMissingSync) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "races on purpose";
#endif
  const auto is_ring = [](const ops::SyncAttrs& sync) { return sync.axis == "ring"; };
  const auto is_first = [](const ops::SyncAttrs& sync) {
    return sync.axis == "world" && sync.arrivals.empty();
  };
  const auto is_relay = [](const ops::SyncAttrs& sync) {
    return sync.axis.empty() && !sync.arrivals.empty();
  };
  const auto is_last = [](const ops::SyncAttrs& sync) {
    return sync.axis == "world" && !sync.arrivals.empty();
  };
  expect_found(kCases[5], "ring", is_ring);
  expect_found(kCases[5], "first", is_first);
  expect_found(kCases[5], "relay", is_relay);
  expect_found(kCases[5], "last", is_last);
  expect_found(std::end(kCases)[-1], "ring", is_ring);
}

// Wraps the `turn`-th launch of a kind on one rank, counted over the steps.
void disturb(cpu::KernelTable& table, std::string_view kind, int turn,
             const std::function<void()>& what, bool skip) {
  cpu::Kernel kernel = table.at(kind);
  const auto bind = kernel.bind;
  const auto calls = std::make_shared<std::atomic<int>>(0);
  kernel.bind = [=](const cpu::LaunchArgs& args) -> cpu::BoundKernel {
    return [=, run = bind(args)](const cpu::Team& team) {
      if (team.index == 0 && (*calls)++ == turn) {
        what();
        if (skip) return;
      }
      run(team);
    };
  };
  table.add(kind, kernel);
}

int launches_of(const Program& program, std::string_view kind) {
  return static_cast<int>(
      std::ranges::count_if(program.ops, [&](const Op& op) { return op.def->kind == kind; }));
}

struct Died : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Every launch of every kind of stage, on a rank in the middle.
template <class Each>
void for_each_stage(Each&& each) {
  for (const Case& c : kCases) {
    const SequenceMesh mesh = sequence_mesh(c.mode, parse_topology(c.topology), 6, c.request);
    const SequenceAttention a = small_attention(mesh.ranks());
    const std::vector<Program> programs =
        attention_programs(a, mesh, {.kernels = c.kernels, .least_rows = 1});
    for (const char* kind : {"sync", "pull", "push", "segment_attention"}) {
      for (int turn = 0; turn < launches_of(programs[0], kind); ++turn) {
        SCOPED_TRACE(fmt::format("{}: {} {}", name_of(c, mesh), kind, turn));
        each(a, mesh, c.kernels, kind, turn);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(SequenceFaults, ALateRankChangesNothing) {
  for_each_stage([](const SequenceAttention& a, const SequenceMesh& mesh, const Kernels& kernels,
                    const char* kind, int turn) {
    WorldConfig config{.steps = 2, .kernels = kernels};
    const WorldResult want = run_world(a, mesh, config);
    config.adjust = [&](fabric::Endpoint& endpoint, cpu::KernelTable& table) {
      if (endpoint.rank() != mesh.ranks() / 2) return;
      disturb(
          table, kind, turn, [] { std::this_thread::sleep_for(milliseconds(5)); }, false);
    };
    ASSERT_TRUE(same(run_world(a, mesh, config), want));
  });
}

TEST(SequenceFaults, ADeadRankEndsAllWithItsError) {
  for_each_stage([](const SequenceAttention& a, const SequenceMesh& mesh, const Kernels& kernels,
                    const char* kind, int turn) {
    WorldConfig config{.steps = 2, .kernels = kernels};
    config.adjust = [&](fabric::Endpoint& endpoint, cpu::KernelTable& table) {
      if (endpoint.rank() != mesh.ranks() / 2) return;
      disturb(
          table, kind, turn, [] { throw Died("died"); }, false);
    };
    EXPECT_THROW(run_world(a, mesh, config), Died);
  });
}

// A rank that stops in a stage never comes to what the others wait for.
TEST(SequenceFaults, AStoppedRankGivesTheDeadline) {
  for_each_stage([](const SequenceAttention& a, const SequenceMesh& mesh, const Kernels& kernels,
                    const char* kind, int turn) {
    // The end of ulysses is for nobody but the rank itself.
    const bool last = turn == (mesh.topology.machines > 1 ? 3 : 2);
    if (mesh.mode == SpMode::ulysses && std::string_view(kind) == "sync" && last) return;
    WorldConfig config{.deadline = milliseconds(15), .kernels = kernels};
    config.adjust = [&](fabric::Endpoint& endpoint, cpu::KernelTable& table) {
      if (endpoint.rank() != mesh.ranks() / 2) return;
      // Stopped until the others have given up, which ends the job.
      disturb(
          table, kind, turn,
          [&endpoint] {
            for (int i = 0; i < 2000; ++i) {
              std::this_thread::sleep_for(milliseconds(1));
              endpoint.check();
            }
            throw Died("nobody noticed");
          },
          false);
    };
    try {
      run_world(a, mesh, config);
      ADD_FAILURE() << "no error";
    } catch (const Died& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
      EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
    }
  });
}

// A push whose signal is lost: its target says whom it waits for. Rank 3 waits for the first one,
// of the prefix, before it meets the others, who may say first that they wait for rank 3.
TEST(SequenceFaults, ALostPushIsMissed) {
  const Case c = kCases[5];
  const SequenceMesh mesh = sequence_mesh(c.mode, parse_topology(c.topology), 6, c.request);
  const SequenceAttention a = small_attention(mesh.ranks());
  for (int turn : {0, 1, 2}) {
    SCOPED_TRACE(turn);
    WorldConfig config{.deadline = milliseconds(30)};
    config.adjust = [&](fabric::Endpoint& endpoint, cpu::KernelTable& table) {
      if (endpoint.rank() == 1)
        disturb(
            table, "push", turn, [] {}, true);
    };
    try {
      run_world(a, mesh, config);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadline);
      const auto names = [&](const char* rank) {
        return std::string_view(error.what()).find(rank) != std::string_view::npos;
      };
      EXPECT_TRUE(names("from rank 1") || (turn == 0 && names("from rank 3"))) << error.what();
    }
  }
}

// Strategies on top: the same bits whatever runs when, where the calls are the same.
TEST(SequenceSchedules, StrategiesAgree) {
  const Case c = kCases[5];
  const SequenceMesh mesh = sequence_mesh(c.mode, parse_topology(c.topology), 6, c.request);
  const SequenceAttention a = small_attention(mesh.ranks(), 3);
  WorldConfig config{.strategy = "sequential", .steps = 2};
  const WorldResult want = run_world(a, mesh, config);
  expect_exact(a, want, config.seed + 1);
  for (const char* name : {"sequence_parallel", "overlap", "nanoflow"}) {
    for (int micro_batches : {1, 2, 3}) {
      config.strategy = name;
      config.micro_batches = micro_batches;
      for (int threads : {1, 2}) {
        config.threads = threads;
        EXPECT_TRUE(same(run_world(a, mesh, config), want))
            << name << ", " << micro_batches << " micro-batches, " << threads << " threads";
      }
    }
  }
}

// The strategy uses all three streams, and the attention of a stage does not wait for the transfers
// of the next one.
TEST(SequenceSchedules, TransfersRunBesideTheAttention) {
  const SequenceMesh mesh =
      sequence_mesh(SpMode::torus, parse_topology("3x2"), 6, {.torus = 3, .ulysses = 1, .ring = 2});
  const SequenceAttention a = small_attention(mesh.ranks());
  const WorldResult got = run_world(a, mesh, {});
  const Program program = attention_programs(a, mesh)[0];
  const Schedule& schedule = got.schedules[0];
  const LaunchOrder order(schedule.launches);
  std::vector<int> pulls, calls;
  for (int i = 0; i < static_cast<int>(schedule.launches.size()); ++i) {
    const Launch& launch = schedule.launches[static_cast<size_t>(i)];
    const std::string_view kind = schedule.op(program, launch).def->kind;
    if (kind == "pull" && launch.stream == Stream::comm) pulls.push_back(i);
    if (kind == "segment_attention") calls.push_back(i);
    EXPECT_EQ(kind == "segment_attention", launch.stream == Stream::compute && kind != "buffers");
  }
  ASSERT_EQ(pulls.size(), 4u);  // q of two classes, then their keys
  ASSERT_EQ(calls.size(), 9u);  // 2 ring steps, 2 queries, 2 classes x 2 ring steps, the last
  for (int pull : pulls) EXPECT_FALSE(order.before(pull, calls[0])) << "the first waits for a pull";
  EXPECT_TRUE(order.before(pulls[0], calls[2]));
  EXPECT_FALSE(order.before(pulls[1], calls[2])) << "class 1 waits for the queries of class 2";
  EXPECT_FALSE(order.before(pulls[2], calls[3])) << "queries wait for keys of later classes";
  EXPECT_TRUE(order.before(pulls[2], calls[4]));
  EXPECT_FALSE(order.before(pulls[3], calls[4]));
  const auto push = std::ranges::find_if(schedule.launches, [&](const Launch& l) {
    return schedule.op(program, l).def->kind == "push";
  });
  // Every stream takes its launches in the order of need, which is that of the Program.
  for (Stream stream : kStreams) {
    int last = -1;
    for (const Launch& launch : schedule.launches) {
      if (launch.stream != stream) continue;
      EXPECT_GT(launch.op, last) << "a later stage is before an earlier one on "
                                 << to_string(stream);
      last = launch.op;
    }
  }
  EXPECT_FALSE(order.before(static_cast<int>(push - schedule.launches.begin()), calls.back()))
      << "the last attention waits for the push of the others' results";
}

}  // namespace
}  // namespace braid::testing_sp
