// Remarks on a choice of ranks and threads.
#include "braid/engine/parallel_choice.h"

#include <gmock/gmock.h>

#include "braid/backend/cpu/thread_pool.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> remarks(int ranks, int threads) {
  return choose_parallel({.device = "cpu",
                          .engine = {.threads = threads},
                          .sequence = SequenceRequest{.mode = "ring", .ranks = ranks}})
      .remarks;
}

TEST(ParallelChoice, AdvisesWhatIsNotDoneAlready) {
  const int cores = cpu::usable_cores();
  EXPECT_THAT(remarks(1, 1), IsEmpty());
  EXPECT_THAT(remarks(1, 2 * cores),
              ElementsAre(HasSubstr(fmt::format("take turns: --threads {} is faster", cores))));
  EXPECT_THAT(remarks(2 * cores, 1), ElementsAre(HasSubstr("take turns: fewer ranks are faster")));
  EXPECT_THAT(remarks(2 * cores, 2), ElementsAre(HasSubstr("take turns: --threads 1 is faster")));
}

// Streams of ranks that share a GPU may hold each other up.
TEST(ParallelChoice, RanksThatShareAGpuComputeInOrder) {
  const auto schedule = [](const std::vector<int>& ids, const char* named) {
    EngineConfig engine{.device = {.cuda = true, .ids = ids}, .sp = SequenceParallel{}};
    engine.schedule = *named == '\0' ? "auto" : named;
    SequenceRequest{.mode = "ring", .schedule_named = *named != '\0'}.choose_schedule(engine);
    return engine.schedule;
  };
  EXPECT_EQ(schedule({0, 1}, ""), "sequence_parallel");
  EXPECT_EQ(schedule({}, ""), "sequence_parallel");
  EXPECT_EQ(schedule({1, 0, 1}, ""), "sequential");
  EXPECT_EQ(schedule({0, 0}, "auto"), "sequential");
  EXPECT_EQ(schedule({0, 1}, "auto"), "auto");
  EXPECT_EQ(schedule({0, 1}, "overlap"), "overlap");
  EXPECT_EQ(schedule({0, 0}, "sequential"), "sequential");
  EXPECT_EQ(schedule({0, 0}, "./mine.so"), "./mine.so");
  for (const char* beside : {"overlap", "sequence_parallel", "tokenweave"}) {
    try {
      schedule({1, 0, 1}, beside);
      ADD_FAILURE() << beside;
    } catch (const Error& error) {
      EXPECT_EQ(
          error.what(),
          fmt::format("--schedule {} with --sp on ranks that share a GPU (cuda:1,0,1): a copy "
                      "may wait behind its own reader; wanted sequential or auto",
                      beside));
    }
  }
}

}  // namespace
}  // namespace braid
