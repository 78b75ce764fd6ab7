#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/barrier.h"
#include "dist/await_all.h"
#include "dist/fabric_testing.h"
#include "dist/worlds.h"

namespace braid::fabric {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

template <class Fn>
Error error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInvalidArgument, "no error");
}

// Where a fault may happen.
struct Place {
  World world;
  LinkModel links;
};
std::vector<Place> places(int ranks) {
  std::vector<Place> all = {{}, {{}, {.machines = ranks, .cluster_link = Link{1e8, 50e-6}}}};
  for (const World& world : worlds(ranks)) {
    if (world.processes > 0) all.push_back({world, {}});
  }
  return all;
}

TEST(FabricFaults, ARankThatNeverArrivesIsADeadline) {
  for (const auto& [world, links] : places(3)) {
    SCOPED_TRACE(world.name());
    const Error error = error_of([&] {
      run_world(world, {.ranks = 3, .links = links}, [](Endpoint& e) {
        Comm comm(e, Group::world(3), {.name = "tp", .deadline = milliseconds(50)});
        std::vector<float> x(100);
        all_reduce(comm, {}, x.data(), x.data(), 100);
        if (e.rank() == 1) return;  // and never comes back
        all_reduce(comm, {}, x.data(), x.data(), 100);
      });
    });
    EXPECT_EQ(error.code(), ErrorCode::kDeadline);
    EXPECT_THAT(error.what(), HasSubstr("waited 0.05 s for 'tp/all_reduce'"));
    EXPECT_THAT(error.what(), HasSubstr("from rank 1: expected 2, seen 1"));
  }
}

TEST(FabricFaults, ARankThatThrowsEndsAllInEveryStage) {
  for (const auto& [world, links] : places(4)) {
    SCOPED_TRACE(world.name());
    for (int stage = 0; stage < 12; ++stage) {
      const Shared<std::atomic<int>> here, told;
      const Error error = error_of([&] {
        run_world(world, {.ranks = 4, .links = links}, [&](Endpoint& e) {
          Comm comm(e, Group::world(4), {.slot_bytes = 256});
          std::vector<float> x(1000);
          ++*here;
          for (int i = 0; i < 20; ++i) {
            if (e.rank() == stage % 4 && i == stage) {
              await_all(e, *here);
              fail(ErrorCode::kResource, "rank {} is out of pages", e.rank());
            }
            const Error mine = error_of([&] {
              all_reduce(comm, {}, x.data(), x.data(), 1000,
                         i % 2 ? AllReduceAlgorithm::one_shot : AllReduceAlgorithm::two_shot);
            });
            if (std::string(mine.what()) == "no error") continue;
            EXPECT_EQ(mine.code(), ErrorCode::kAborted);
            EXPECT_THAT(mine.what(), HasSubstr("is out of pages"));
            ++*told;
            throw mine;
          }
        });
      });
      EXPECT_EQ(told->load(), 3) << "stage " << stage;
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_EQ(std::string(error.what()), fmt::format("rank {} is out of pages", stage % 4));
    }
  }
}

TEST(FabricFaults, ThreadsOfATeamAreFreedToo) {
  for (const World& world : worlds(2)) {
    const Error error = error_of([&] {
      run_world(world, {.ranks = 2, .threads_per_rank = 3}, [](Endpoint& e) {
        Comm comm(e, Group::world(2), {.lanes = 3});
        cpu::ThreadPool pool(3, 6);
        std::vector<float> x(100000);
        for (int i = 0; i < 5; ++i) {
          pool.run([&](const cpu::Team& team) {
            if (e.rank() == 1 && team.index == 2 && i == 3) {
              fail(ErrorCode::kMalformed, "thread 2 of rank 1");
            }
            all_reduce(comm, team, x.data(), x.data(), 100000);
            team.barrier();
          });
        }
      });
    });
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
  }
}

TEST(FabricFaults, ALateRankIsNoFault) {
  for (const World& world : worlds(3)) {
    run_world(world, {.ranks = 3, .deadline = std::chrono::seconds(30)}, [](Endpoint& e) {
      Comm comm(e, Group::world(3));
      for (int i = 0; i < 3; ++i) {
        if (e.rank() == i) std::this_thread::sleep_for(milliseconds(30));
        barrier(comm);
      }
    });
  }
}

TEST(FabricFaults, CommsThatDifferAreRefused) {
  for (const World& world : worlds(2)) {
    const auto make = [&](CommConfig a, CommConfig b) {
      return error_of([&] {
        run_world(world, {.ranks = 2},
                  [&](Endpoint& e) { Comm comm(e, Group::world(2), e.rank() == 0 ? a : b); });
      });
    };
    EXPECT_EQ(make({.lanes = 1}, {.lanes = 2}).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(make({.name = "tp"}, {.name = "sp"}).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(make({.slot_bytes = 100}, {.slot_bytes = 100}).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(make({.lanes = 0}, {.lanes = 0}).code(), ErrorCode::kInvalidArgument);
    const Error outside = error_of(
        [&] { run_world(world, {.ranks = 2}, [](Endpoint& e) { Comm comm(e, Group{{0}}); }); });
    EXPECT_EQ(outside.code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace braid::fabric
