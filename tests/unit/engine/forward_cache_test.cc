// A served load whose sizes change at every step finds its plans in the cache.
#include <gtest/gtest.h>

#include <random>

#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/runtime/serial_backend.h"
#include "unit/schedule/planned_decoder.h"

namespace braid {
namespace {

constexpr int64_t kPageSize = 64;
constexpr int64_t kBudget = 512;  // tokens of a step
constexpr size_t kMostRunning = 96;

struct Running {
  int64_t prompt = 0;
  int64_t answer = 0;
  int64_t done = 0;
};

// Continuous batching: requests come at random, decodes go first, prompts fill the rest of the
// budget in chunks.
class Load {
 public:
  explicit Load(uint64_t seed) : rng_(seed) {}

  void step(Batch& batch) {
    const int64_t arrivals = running_.empty() ? 1 : static_cast<int64_t>(rng_() % 16 == 0) * 2;
    for (int64_t i = 0; i < arrivals && running_.size() < kMostRunning; ++i) {
      running_.push_back({draw(1, 3000), draw(1, 400), 0});
    }
    batch.clear();
    int64_t left = kBudget;
    for (const bool decode : {true, false}) {
      for (Running& r : running_) {
        const bool decodes = r.done >= r.prompt;
        if (decodes != decode || left == 0) continue;
        const int64_t n = decode ? 1 : std::min(left, r.prompt - r.done);
        const bool last = r.done + n >= r.prompt;
        batch.add(std::span(tokens_).first(static_cast<size_t>(n)), r.done, pages_, last ? 1 : 0);
        r.done += n;
        left -= n;
      }
    }
    std::erase_if(running_, [](const Running& r) { return r.done >= r.prompt + r.answer; });
  }

 private:
  int64_t draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }

  std::mt19937_64 rng_;
  std::vector<Running> running_;
  const std::vector<int32_t> tokens_ = std::vector<int32_t>(kBudget, 1);
  const std::vector<int32_t> pages_ = std::vector<int32_t>(64, 0);
};

TEST(ForwardCache, AMixedLoadHitsInAtLeast99Of100Steps) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const std::string& name : strategy_names()) {
    SCOPED_TRACE(name);
    const auto strategy = find_strategy(name);
    Load load(seed);
    Batch batch(kPageSize);
    BatchCut cut;
    ForwardCache cache;
    for (int step = 0; step < 10000; ++step) {
      load.step(batch);
      cut.assign(batch, strategy->split(batch.info(2)), name);
      const ContextKey key = key_for(cut, 0, 2);
      cache.get(key, [&] { return BoundForward{.key = key}; });
    }
    const ForwardCache::Counters counters = cache.counters();
    EXPECT_EQ(counters.hits + counters.misses, 10000);
    EXPECT_LE(counters.misses, 100);
    RecordProperty(name, static_cast<int>(counters.misses));
  }
}

TEST(ForwardCache, KeepsTheMostRecentlyUsed) {
  ForwardCache cache;
  int made = 0;
  const auto ask = [&](int strategy) {
    const ContextKey key{.strategy = strategy, .micro_batches = {}};
    cache.get(key, [&] {
      ++made;
      return BoundForward{.key = key};
    });
  };
  const int n = static_cast<int>(ForwardCache::kCapacity);
  for (int i = 0; i < n; ++i) ask(i);
  ask(0);
  ask(n);  // drops 1, the oldest
  ask(0);
  EXPECT_EQ(made, n + 1);
  ask(1);
  EXPECT_EQ(made, n + 2);
}

TEST(ForwardCache, LetsGoOfOldPlansWhoseGraphsTakeTooMuch) {
  using namespace testing_schedule;
  testing_runtime::SerialBackend backend;
  testing_runtime::Memory memory;
  const Program program = decoder({1, 1, 1}, {.layers = 1});
  const Schedule schedule =
      schedule_of(program, three_streams(), backend.catalog(), {{program.capacity}});
  ForwardCache cache;
  const auto made = [&](int strategy, int64_t bytes) {
    const ContextKey key{.strategy = strategy, .micro_batches = {}};
    bool fresh = false;
    cache.get(key, [&] {
      fresh = true;
      backend.replay_bytes = bytes;
      BoundForward bound{key, {}};
      bound.executors.push_back(
          std::make_unique<Executor>(program, schedule, backend, std::ref(memory)));
      return bound;
    });
    return fresh;
  };
  constexpr int64_t kThird = ForwardCache::kDeviceBytes / 3;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(made(i, kThird));  // three fit, and the newest
  for (int i = 3; i >= 0; --i) EXPECT_FALSE(made(i, kThird));
  EXPECT_TRUE(made(4, 0));  // 3, the oldest, is over the limit
  for (int i : {0, 1, 2, 4}) EXPECT_FALSE(made(i, kThird));
  EXPECT_TRUE(made(3, 4 * kThird));
  EXPECT_TRUE(made(5, 0));  // 3 alone is too much: all that is older goes, the newest stays
  EXPECT_FALSE(made(3, 0));
  EXPECT_TRUE(made(4, 0));  // 5 is older than 3
  EXPECT_TRUE(made(5, 0));
  EXPECT_FALSE(made(4, 0));
}

TEST(ForwardCache, LetsGoOfPlansThatKeepASmallerArena) {
  ForwardCache cache;
  const auto made = [&](int strategy, int64_t arena_bytes) {
    const ContextKey key{.strategy = strategy, .micro_batches = {}};
    bool fresh = false;
    cache.get(key, [&] {
      fresh = true;
      cache.make_way(arena_bytes);
      return BoundForward{.key = key};
    });
    return fresh;
  };
  constexpr int64_t kMuch = ForwardCache::kArenaBytes + 1;
  EXPECT_TRUE(made(0, 1));
  EXPECT_TRUE(made(1, kMuch));
  EXPECT_FALSE(made(0, 1)) << "what it keeps is little";
  EXPECT_TRUE(made(2, kMuch));
  EXPECT_FALSE(made(1, kMuch)) << "the same arena";
  EXPECT_TRUE(made(3, kMuch + 1));
  for (int i : {0, 1, 2}) EXPECT_TRUE(made(i, 1));
  EXPECT_FALSE(made(3, kMuch + 1));
}

}  // namespace
}  // namespace braid
