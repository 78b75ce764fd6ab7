// Launches on streams that run beside each other: real overlap, waits, errors, times.
#include "braid/backend/cpu/cpu_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <random>
#include <thread>

#include "braid/backend/cpu/cpu_backend.h"

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<bool> counting{false};
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace braid::cpu {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 20s;

// Steps whose launches call functions of the test's, by index.
class Steps {
 public:
  using Body = std::function<void(int launch, const Team& team)>;

  struct Step {
    Stream stream = Stream::compute;
    std::vector<int> waits;
  };

  Steps(int threads, std::vector<Step> steps)
      : pool_(threads, 8), table_(threads), ops_(steps.size()), parts_(steps.size()) {
    table_.add("test", {.info =
                            [](const Op&, TypeList, TypeList, int) {
                              return KernelInfo{"test", 0};
                            },
                        .bind =
                            [this](const LaunchArgs& args) {
                              const auto i = static_cast<int>(args.call.op - ops_.data());
                              return [this, i](const Team& team) { body(i, team); };
                            }});
    backend_.emplace(table_, pool_);
    std::vector<BoundOp> launches;
    for (size_t i = 0; i < steps.size(); ++i) {
      ops_[i].def = &kDef;
      std::vector<Wait> waits;
      for (int awaited : steps[i].waits) waits.push_back({awaited});
      launches.push_back({.op = &ops_[i],
                          .part = &parts_[i],
                          .stream = steps[i].stream,
                          .waits = std::move(waits)});
    }
    times.resize(launches.size());
    replay_ = backend_->bind({.launches = std::move(launches), .parts = {}, .inputs = {}});
  }

  void run() { replay_->run(times); }

  Body body = [](int, const Team&) {};
  std::vector<LaunchTime> times;

 private:
  static const OpDef kDef;
  ThreadPool pool_;
  KernelTable table_;
  std::vector<Op> ops_;
  std::vector<BatchPart> parts_;
  std::optional<CpuBackend> backend_;
  std::unique_ptr<Replay> replay_;
};
const OpDef Steps::kDef = {.kind = "test"};

bool wait_until(const std::function<bool()>& done) {
  const auto end = Clock::now() + kDeadline;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(CpuReplay, StreamsRunBesideEachOther) {
  // Each of the three is done once all three have begun: never, if one ran after another.
  for (int threads : {1, 2}) {
    Steps steps(threads, {{Stream::comm}, {Stream::side}, {Stream::compute}});
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> begun{0};
      std::atomic<int> met{0};
      steps.body = [&](int, const Team& team) {
        if (team.index != 0) return;
        ++begun;
        met += wait_until([&] { return begun == 3; }) ? 1 : 0;
      };
      steps.run();
      ASSERT_EQ(met, 3);
      const double last_begin =
          std::max({steps.times[0].begin, steps.times[1].begin, steps.times[2].begin});
      for (const LaunchTime& time : steps.times) EXPECT_GE(time.end, last_begin);
    }
  }
}

TEST(CpuReplay, OrderUnderRandomDelays) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 30; ++round) {
    const int threads = 1 + static_cast<int>(rng() % 3);
    std::vector<Steps::Step> graph(2 + rng() % 20);
    for (size_t i = 0; i < graph.size(); ++i) {
      graph[i].stream = kStreams[rng() % kNumStreams];
      for (size_t w = rng() % 3; i > 0 && w > 0; --w) {
        graph[i].waits.push_back(static_cast<int>(rng() % i));
      }
    }
    Steps steps(threads, graph);
    for (int run = 0; run < 3; ++run) {
      std::vector<std::atomic<int>> ended(graph.size());
      std::atomic<int> early{0};
      const uint64_t delays = rng();
      steps.body = [&](int launch, const Team& team) {
        const auto i = static_cast<size_t>(launch);
        for (int wait : graph[i].waits) {
          const int whole =
              graph[static_cast<size_t>(wait)].stream == Stream::compute ? threads : 1;
          early += ended[static_cast<size_t>(wait)] == whole ? 0 : 1;
        }
        for (size_t j = 0; j < i; ++j) {
          if (graph[j].stream != graph[i].stream) continue;
          early += ended[j] == (graph[j].stream == Stream::compute ? threads : 1) ? 0 : 1;
        }
        const uint64_t delay = (delays ^ (i * 0x9e3779b97f4a7c15u)) % 7;
        if (delay > 3) std::this_thread::sleep_for(std::chrono::microseconds(20 * delay));
        (void)team;
        ++ended[i];
      };
      for (LaunchTime& time : steps.times) time = {-1, -1};
      const auto seconds = [] {
        return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
      };
      const double before = seconds();
      steps.run();
      const double after = seconds();
      ASSERT_EQ(early, 0);
      std::array<double, kNumStreams> last{before, before, before};
      for (size_t i = 0; i < graph.size(); ++i) {
        ASSERT_EQ(ended[i], graph[i].stream == Stream::compute ? threads : 1);
        const LaunchTime& time = steps.times[i];
        double& stream_end = last[static_cast<size_t>(graph[i].stream)];
        ASSERT_LE(stream_end, time.begin) << "launches of one stream do not overlap";
        ASSERT_LE(time.begin, time.end);
        ASSERT_LE(time.end, after);
        for (int wait : graph[i].waits) {
          ASSERT_LE(steps.times[static_cast<size_t>(wait)].end, time.begin);
        }
        stream_end = time.end;
      }
    }
  }
}

// A launch of any stream and thread fails while the others wait for it, work, or are done.
TEST(CpuReplay, AnErrorEndsTheRunAndTheNextOneIsGood) {
  const std::vector<Steps::Step> graph = {
      {Stream::compute},         {Stream::comm},         {Stream::side, {0}},
      {Stream::compute, {1}},    {Stream::comm, {2, 3}}, {Stream::side, {3}},
      {Stream::compute, {4, 5}}, {Stream::comm, {6}},
  };
  for (int threads : {1, 2}) {
    Steps steps(threads, graph);
    for (int victim = 0; victim < static_cast<int>(graph.size()); ++victim) {
      const bool team = graph[static_cast<size_t>(victim)].stream == Stream::compute;
      for (int thread = 0; thread < (team ? threads : 1); ++thread) {
        std::vector<std::atomic<bool>> ran(graph.size());
        steps.body = [&](int launch, const Team& t) {
          ran[static_cast<size_t>(launch)] = true;
          if (launch == victim && t.index == thread) {
            throw std::runtime_error(fmt::format("launch {} thread {}", launch, thread));
          }
          t.barrier();
        };
        try {
          steps.run();
          ADD_FAILURE() << "no error";
        } catch (const std::runtime_error& e) {
          EXPECT_EQ(e.what(), fmt::format("launch {} thread {}", victim, thread));
        }
        for (size_t i = 0; i < graph.size(); ++i) {
          const auto& waits = graph[i].waits;
          if (std::ranges::count(waits, victim)) {
            EXPECT_FALSE(ran[i]) << i << " ran without what it waits for";
          }
        }
        std::atomic<int> calls{0};
        steps.body = [&](int, const Team& t) {
          t.barrier();
          calls += t.index == 0;
        };
        steps.run();
        EXPECT_EQ(calls, std::ssize(graph));
      }
    }
  }
}

// Two streams fail, the second because of the first: the cause is what the caller hears.
TEST(CpuReplay, TheFirstErrorIsTheOneThatIsThrown) {
  for (bool comm_first : {true, false}) {
    Steps steps(2, {{Stream::comm}, {Stream::compute}});
    const int cause = comm_first ? 0 : 1;
    std::atomic<bool> failed{false};
    steps.body = [&](int launch, const Team& team) {
      if (launch == cause) {
        failed = true;
        fail(ErrorCode::kUnsupported, "the cause");
      }
      wait_until([&] { return failed.load(); });
      std::this_thread::sleep_for(20ms);  // the other one's run is over by now
      if (team.index == 0) fail(ErrorCode::kDeadline, "the consequence");
    };
    try {
      steps.run();
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    }
  }
}

TEST(CpuReplay, RunsAllocateNothing) {
  Steps steps(
      2, {{Stream::compute}, {Stream::comm, {0}}, {Stream::side, {1}}, {Stream::compute, {2}}});
  for (int i = 0; i < 3; ++i) steps.run();
  counting = true;
  for (int i = 0; i < 50; ++i) steps.run();
  counting = false;
  EXPECT_EQ(allocations.exchange(0), 0);
}

TEST(CpuReplay, TimesAreForAllLaunchesOrNone) {
  Steps steps(1, {{Stream::compute}, {Stream::comm}});
  steps.times.pop_back();
  EXPECT_THROW(steps.run(), std::logic_error);
  steps.times.clear();
  EXPECT_NO_THROW(steps.run());
}

TEST(CpuReplay, NothingToDo) {
  Steps steps(2, {});
  EXPECT_NO_THROW(steps.run());
}

}  // namespace
}  // namespace braid::cpu
