// Which GPU a process of a job takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/engine/job_layout.h"

namespace braid {
namespace {

using testing::HasSubstr;

GpuRequest request(int rank, int visible, const DeviceSpec& device) {
  return {.who = fmt::format("rank {} on node1", rank),
          .rank = rank,
          .local_rank = rank,
          .visible = visible,
          .device = device};
}

Error error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kAborted, "no error");
}

TEST(JobGpu, TheLocalRankPicksIt) {
  const DeviceSpec any{.cuda = true};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(choose_gpu(request(rank, 4, any)), rank);
  EXPECT_EQ(choose_gpu(request(1, 8, any)), 1);
}

TEST(JobGpu, CudaVisibleDevicesOfOneGpu) {
  const DeviceSpec any{.cuda = true};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(choose_gpu(request(rank, 1, any)), 0);
}

TEST(JobGpu, ANamedDeviceIsOfTheWholeJob) {
  const DeviceSpec named{.cuda = true, .ids = {2, 0}};
  EXPECT_EQ(choose_gpu(request(0, 4, named)), 2);
  EXPECT_EQ(choose_gpu(request(1, 4, named)), 0);
  const Error few = error_of([&] { choose_gpu(request(2, 4, named)); });
  EXPECT_EQ(few.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(few.what(), HasSubstr("rank 2 on node1: --device names GPUs for 2 ranks"));
}

TEST(JobGpu, ALocalRankBeyondTheGpusIsRefused) {
  const DeviceSpec any{.cuda = true};
  const Error error = error_of([&] { choose_gpu(request(2, 2, any)); });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_STREQ(error.what(),
               "rank 2 on node1, local rank 2, wants cuda:2: this process sees 2 GPUs");
  EXPECT_THAT(error_of([&] { choose_gpu(request(0, 0, any)); }).what(), HasSubstr("sees 0 GPUs"));
}

TEST(JobGpu, ASharedGpuIsRefusedAndBothRanksNamed) {
  EXPECT_NO_THROW(require_own_gpus({"a", "b", "c"}, {"rank 0", "rank 1", "rank 2"}));
  const Error error = error_of([] {
    require_own_gpus({"a", "b", "a"}, {"rank 0 on n", "rank 1 on n", "rank 2 on n"});
  });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("rank 0 on n and rank 2 on n have the same GPU (a)"));
}

}  // namespace
}  // namespace braid
