// What processes agree on before NVSHMEM starts, and before its heap grows.
#include "braid/fabric/nvshmem/nvshmem_meeting.h"

#include <gmock/gmock.h>

#include "processes.h"

namespace braid::fabric {
namespace {

using job::Ending;
using job::host_name;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kMiB = 1 << 20;

NvshmemMeeting meeting_of(job::Job& job) {
  return {
      .process = job.process(),
      .processes = job.processes(),
      .agree = [&job](std::string_view what, std::string_view value) { job.agree(what, value); },
      .broadcast = [&job](std::string_view what,
                          std::string_view value) { return job.broadcast(what, value); }};
}

class NvshmemMeetingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  }
};

TEST_F(NvshmemMeetingTest, VersionsThatDifferAreNamedWithTheirHosts) {
  for (const bool same : {true, false}) {
    const auto endings = job::run_processes({.processes = 2}, [&](job::Job& job) {
      const bool older = same || job.process() == 0;
      setenv("NVSHMEM_HOME",
             older ? BRAID_OTHER_NVSHMEM "/version3_4" : BRAID_OTHER_NVSHMEM "/version3_7", 1);
      agree_on_version(meeting_of(job), NvshmemLibrary(13));
    });
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.done, same);
      if (same) continue;
      EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(ending.text),
                fmt::format("NVSHMEM versions differ: rank 0 on {0} has '3.4.5', rank 1 on {0} has "
                            "'3.7.5'",
                            host_name()));
    }
  }
}

TEST_F(NvshmemMeetingTest, AStartThatFailsNamesVersionAndStatus) {
  setenv("NVSHMEM_HOME", BRAID_OTHER_NVSHMEM "/version3_4", 1);
  const NvshmemLibrary library(13);
  for (const bool meets : {false, true}) {
    try {
      meets ? library.start(0, 2, std::string(128, 'x')) : void(library.unique_id());
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_THAT(error.what(), StartsWith("NVSHMEM 3.4.5 "));
      EXPECT_THAT(error.what(), HasSubstr("status 7"));
    }
  }
  unsetenv("NVSHMEM_HOME");
}

// The heap grows by 512 MiB, with 64 MiB beside: those are needed, whatever the buffer's size.
TEST_F(NvshmemMeetingTest, AHeapThatDoesNotFitNamesTheBufferNeededAndFreeBytes) {
  EXPECT_EQ(heap_block(1), 32 * kMiB);
  EXPECT_EQ(heap_block(32 * kMiB + 1), 64 * kMiB);
  const auto with_free = [](std::array<int64_t, 2> free) {
    return job::run_processes({.processes = 2}, [free](job::Job& job) {
      agree_on_room(meeting_of(job), "arena", heap_block(600 * kMiB),
                    {.device = job.process(),
                     .free = free[static_cast<size_t>(job.process())],
                     .total = 2048 * kMiB});
    });
  };
  const int64_t needed = (1024 + 64) * kMiB;
  for (const Ending& ending : with_free({needed, needed + 5})) EXPECT_TRUE(ending.done);
  for (const Ending& ending : with_free({needed, needed - 1})) {
    EXPECT_EQ(ending.code, ErrorCode::kResource);
    EXPECT_THAT(ending.text,
                HasSubstr(fmt::format("rank 1 on {} has 'symmetric buffer 'arena': needs "
                                      "1140850688 bytes on cuda:1, 1140850687 of "
                                      "2147483648 are free'",
                                      host_name())));
  }
  for (const Ending& ending : with_free({7, 7})) {
    EXPECT_EQ(ending.code, ErrorCode::kResource);
    EXPECT_THAT(ending.text,
                HasSubstr("symmetric buffer 'arena': needs 1140850688 bytes on cuda:"));
  }
}

}  // namespace
}  // namespace braid::fabric
