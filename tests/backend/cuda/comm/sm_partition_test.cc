#include "braid/backend/cuda/sm_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/comm/sm_marks.h"
#include "braid/base/error.h"

namespace braid::cuda::test {
namespace {

constexpr int kMost = 256;

std::vector<uint32_t> marks_of(cudaStream_t stream, uint32_t* device, bool graph) {
  check_cuda(cudaMemset(device, 0, kMost * sizeof(uint32_t)), "marks");
  OwnedGraphExec replayed;
  if (graph) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    mark_sms(device, kMost, stream);
    cudaGraph_t captured = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &captured), "capture");
    const OwnedGraph owned(captured);
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaGraphInstantiate(&exec, captured, 0), "graph");
    replayed.reset(exec);
    check_cuda(cudaGraphLaunch(exec, stream), "graph");
  } else {
    mark_sms(device, kMost, stream);
  }
  check_cuda(cudaStreamSynchronize(stream), "marks");
  std::vector<uint32_t> marks(kMost);
  check_cuda(cudaMemcpy(marks.data(), device, kMost * sizeof(uint32_t), cudaMemcpyDeviceToHost),
             "marks");
  return marks;
}

// Kernels of a part run on as many SMs as it says, and on none of another part's.
TEST(SmPartition, PartsAreApart) {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const DeviceScope scope(0);
  uint32_t* device = nullptr;
  check_cuda(cudaMalloc(&device, kMost * sizeof(uint32_t)), "marks");
  for (const int ranks : {2, 3, 4}) {
    const auto parts = divide_gpus(std::vector<int>(static_cast<size_t>(ranks), 0));
    for (const bool graph : {false, true}) {
      SCOPED_TRACE(ranks * 2 + graph);
      std::vector<uint32_t> all(kMost);
      for (const OwnedPartition& part : parts) {
        const OwnedStream stream = part->make_stream();
        const std::vector<uint32_t> marks = marks_of(stream.get(), device, graph);
        EXPECT_EQ(std::ranges::count(marks, 1u), part->num_sms());
        EXPECT_EQ(device_info(0, part.get()).num_sms, part->num_sms());
        for (int s = 0; s < kMost; ++s)
          all[static_cast<size_t>(s)] += marks[static_cast<size_t>(s)];
      }
      EXPECT_LE(std::ranges::max(all), 1u) << "an SM of two parts";
    }
  }
  cudaFree(device);
}

TEST(SmPartition, OnlySharedGpusAreDivided) {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_EQ(divide_gpus({0})[0], nullptr);
  try {
    divide_gpus(std::vector<int>(64, 0));
    FAIL() << "64 parts";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), testing::StartsWith("cuda:0: 64 ranks cannot share its "));
  }
}

}  // namespace
}  // namespace braid::cuda::test
