#include "braid/schedule/launch_order.h"

#include <gtest/gtest.h>

#include <random>

#include "braid/schedule/schedule.h"

namespace braid {
namespace {

using Set = std::vector<char>;  // 0 or 1 of each launch

struct Random {
  std::vector<Launch> launches;
  std::vector<Set> before;  // [b][a]: a ends before b begins, by plain closure
  std::vector<Set> by_end;  // [b][a]: a ends before b ends
  // [b][phase][a]: a ends before b accesses memory in the phase.
  std::vector<std::vector<Set>> by_access;
};

Random random_launches(std::mt19937_64& rng) {
  Random r;
  const auto n = 1 + rng() % 40;
  for (size_t i = 0; i < n; ++i) {
    Launch launch{.stream = kStreams[rng() % kNumStreams]};
    for (size_t w = rng() % 3; i > 0 && w > 0; --w) {
      launch.waits.push_back({static_cast<int>(rng() % i)});
    }
    Set known(n, 0);
    const auto add = [&](size_t a) {
      known[a] = 1;
      for (size_t b = 0; b < n; ++b) {
        if (r.by_end[a][b]) known[b] = 1;
      }
    };
    for (size_t a = 0; a < i; ++a) {
      if (r.launches[a].stream == launch.stream) add(a);
    }
    for (const Wait& wait : launch.waits) add(static_cast<size_t>(wait.launch));
    Set access;
    if (i > 0 && rng() % 4 == 0) {
      const size_t early = rng() % i;
      launch.waits.push_back({static_cast<int>(early), 0, 0});
      for (size_t b = 0; b < i; ++b) {
        if (r.before[early][b]) known[b] = 1;
      }
      access = r.by_access[early][0];
    } else {
      access = known;
    }
    r.before.push_back(known);
    r.by_access.push_back({access});
    const int phases = static_cast<int>(rng() % 3);
    for (int phase = 1; i > 0 && phase <= phases; ++phase) {
      for (size_t w = 1 + rng() % 2; w > 0; --w) {
        const size_t awaited = rng() % i;
        launch.waits.push_back({static_cast<int>(awaited), phase});
        for (size_t b = 0; b < n; ++b) {
          if (r.by_end[awaited][b]) access[b] = 1;
        }
        access[awaited] = 1;
        add(awaited);
      }
      r.by_access.back().push_back(access);
    }
    r.launches.push_back(launch);
    r.by_end.push_back(known);
  }
  return r;
}

TEST(LaunchOrder, KnowsWhatStreamsAndWaitsImply) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    const Random r = random_launches(rng);
    const LaunchOrder order(r.launches);
    ASSERT_EQ(order.size(), std::ssize(r.launches));
    for (int b = 0; b < order.size(); ++b) {
      for (int a = 0; a < order.size(); ++a) {
        ASSERT_EQ(order.before(a, b), r.before[static_cast<size_t>(b)][static_cast<size_t>(a)] != 0)
            << a << " before " << b;
        for (int phase = 0; phase < 3; ++phase) {
          const auto& phases = r.by_access[static_cast<size_t>(b)];
          const auto last = std::min(static_cast<size_t>(phase), phases.size() - 1);
          ASSERT_EQ(order.before_access(a, b, phase), phases[last][static_cast<size_t>(a)] != 0)
              << a << " before phase " << phase << " of " << b;
        }
      }
    }
  }
}

TEST(LaunchOrder, PendingWaitsForNothingItKnows) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    const Random r = random_launches(rng);
    LaunchOrder order(r.launches);
    const int n = order.size();
    std::vector<int> needs;
    std::vector<Wait> waits;
    for (int i = n - 1; i >= 0; --i) {
      if (rng() % 4 == 0) needs.push_back(i);
    }
    const Stream stream = kStreams[rng() % kNumStreams];
    LaunchOrder::Pending pending = order.begin(stream);
    for (int need : needs) {
      if (pending.wait_for(need)) waits.push_back({need});
    }
    // Every wait is of use, and together they are enough.
    for (size_t skip = 0; skip <= waits.size(); ++skip) {
      LaunchOrder with = order;
      std::vector<Wait> some = waits;
      if (skip < waits.size()) some.erase(some.begin() + static_cast<int64_t>(skip));
      with.add(stream, some);
      bool all = true;
      for (int need : needs) all = all && with.before(need, n);
      EXPECT_EQ(all, skip == waits.size());
    }
  }
}

}  // namespace
}  // namespace braid
