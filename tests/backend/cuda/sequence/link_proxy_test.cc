// The adapter of an emulated machine moves what it is asked for, bitwise, in the order of asking;
// so does one that copies directly. Streams and their graphs ask and wait by themselves.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/queues.h"
#include "backend/cuda/sequence/sequence_world.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/fabric/peer/link_proxy.h"

namespace braid::fabric {
namespace {

using testing_sp_gpu::fabric_config;
using testing_sp_gpu::gpus;

constexpr int64_t kBytes = 9 << 20;

class Proxy : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (gpus() == 0) GTEST_SKIP() << "no GPU";
    PeerFabricConfig config = fabric_config(parse_topology(GetParam() ? "1x2" : "2x1"));
    config.deadline = std::chrono::seconds(10);
    if (!GetParam()) config.links.cluster_link = Link{40e9, 3e-6};
    fabric_ = std::make_unique<PeerFabric>(config);
    for (int rank : {0, 1}) {
      memory_[rank] = fabric_->endpoint(rank).allocate<std::byte>(kBytes, "memory");
      std::vector<std::byte>& host = host_[rank];
      host.resize(kBytes);
      std::mt19937_64 random(static_cast<uint64_t>(rank) + 7);
      for (auto& x : host) x = static_cast<std::byte>(random());
      write(rank);
    }
  }
  void write(int rank) {
    cuda::check_cuda(
        cudaMemcpy(memory_[rank].data(), host_[rank].data(), kBytes, cudaMemcpyHostToDevice),
        "write");
  }
  std::vector<std::byte> read(int rank) {
    std::vector<std::byte> out(kBytes);
    cuda::check_cuda(cudaMemcpy(out.data(), memory_[rank].data(), kBytes, cudaMemcpyDeviceToHost),
                     "read");
    return out;
  }
  void wait(LinkProxy::Job& job) {
    const auto start = std::chrono::steady_clock::now();
    while (!job.take_answer()) {
      fabric_->endpoint(0).check();
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "no answer";
    }
  }
  // All of rank 0's memory to rank 1, for streams of that.
  std::unique_ptr<LinkProxy::Job> whole() {
    auto job = fabric_->endpoint(1).make_transfer(0, false);
    job->set({{memory_[1].data(), memory_[0].data(), {.row_bytes = kBytes}}});
    return job;
  }

  std::unique_ptr<PeerFabric> fabric_;
  SymBuf<std::byte> memory_[2];
  std::vector<std::byte> host_[2];
};

TEST_P(Proxy, MovesBlocksAndRowsOfAnySize) {
  const auto job = fabric_->endpoint(1).make_transfer(0, false);  // rank 1 reads rank 0
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 40; ++turn) {
    const int64_t row = 1 + static_cast<int64_t>(random() % (turn % 4 == 0 ? 3000000 : 5000));
    const int64_t src_stride = row + static_cast<int64_t>(random() % 100);
    const int64_t dst_stride = row + static_cast<int64_t>(random() % 100);
    const int64_t most = kBytes / std::max(src_stride, dst_stride);
    const int64_t rows = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    SCOPED_TRACE(
        fmt::format("{} rows of {}, strides {} and {}", rows, row, src_stride, dst_stride));
    write(1);
    std::vector<std::byte> want = host_[1];
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(want.data() + r * dst_stride, host_[0].data() + r * src_stride,
                  static_cast<size_t>(row));
    }
    job->set({{memory_[1].data(), memory_[0].data(), {row, rows, dst_stride, src_stride}}});
    job->ask();
    wait(*job);
    ASSERT_TRUE(read(1) == want);
  }
}

TEST_P(Proxy, SeveralTransfersEndInTheOrderOfAsking) {
  const auto first = fabric_->endpoint(1).make_transfer(0, false);
  const auto second = fabric_->endpoint(0).make_transfer(1, true);  // the same way
  const auto nothing = fabric_->endpoint(0).make_transfer(1, true);
  std::byte* const to = memory_[1].data();
  for (int turn = 0; turn < 20; ++turn) {
    first->set({{to, memory_[0].data(), {.row_bytes = 4 << 20}}});
    // Over a part of what the first wrote.
    second->set({{to + (1 << 20), memory_[0].data(), {.row_bytes = 100}},
                 {to + (3 << 20), memory_[0].data() + 5, {.row_bytes = 1 << 20}}});
    first->ask();
    std::this_thread::sleep_for(std::chrono::microseconds(turn * 20));
    second->ask();
    nothing->ask();
    wait(*nothing);
    wait(*second);
    ASSERT_TRUE(first->take_answer());
    std::vector<std::byte> want = host_[1];
    std::memcpy(want.data(), host_[0].data(), 4 << 20);
    std::memcpy(want.data() + (1 << 20), host_[0].data(), 100);
    std::memcpy(want.data() + (3 << 20), host_[0].data() + 5, 1 << 20);
    ASSERT_TRUE(read(1) == want) << "turn " << turn;
    write(1);
  }
}

// Asked by a stream, and by a graph of it, while the words stand between other work.
TEST_P(Proxy, AStreamAsksAndWaitsWithoutAKernel) {
  if (!cuda::has_queues_for_words()) GTEST_SKIP() << "too few queues";
  const auto job = whole();
  const cuda::DeviceScope scope(fabric_->endpoint(1).device());
  const cuda::OwnedStream stream = cuda::make_stream();
  cuda::PinnedMemory pinned(kBytes);
  const auto issue = [&] {
    cuda::check_cuda(cudaMemsetAsync(memory_[1].data(), 0x5a, kBytes, stream.get()), "poison");
    using Does = cuda::StreamWord::Does;
    const cuda::StreamWord words[] = {{Does::write, job->asked(), 1},
                                      {Does::wait, job->done(), 1},
                                      {Does::write, job->done(), 0}};
    cuda::put_words(stream.get(), words);
    cuda::check_cuda(cudaMemcpyAsync(pinned.data(), memory_[1].data(), kBytes,
                                     cudaMemcpyDeviceToHost, stream.get()),
                     "read");
  };
  const auto expect = [&] {
    cuda::check_cuda(cudaStreamSynchronize(stream.get()), "stream");
    ASSERT_EQ(std::memcmp(pinned.data(), host_[0].data(), kBytes), 0);
    std::memset(pinned.data(), 0, kBytes);
  };
  issue();
  expect();
  cuda::check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "begin");
  issue();
  cudaGraph_t raw = nullptr;
  cuda::check_cuda(cudaStreamEndCapture(stream.get(), &raw), "end");
  const cuda::OwnedGraph graph(raw);
  cudaGraphExec_t exec = nullptr;
  cuda::check_cuda(cudaGraphInstantiate(&exec, raw, 0), "graph");
  const cuda::OwnedGraphExec owned(exec);
  for (int turn = 0; turn < 20; ++turn) {
    cuda::check_cuda(cudaGraphLaunch(exec, stream.get()), "graph");
    expect();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Proxy, testing::Bool(),
                         [](const auto& info) { return info.param ? "direct" : "adapter"; });

// A link that is too slow ends the job, and who waits without a deadline goes on all the same.
TEST(ProxyDeadline, IsAnErrorAndAnAnswer) {
  if (gpus() == 0) GTEST_SKIP() << "no GPU";
  PeerFabricConfig config = fabric_config(parse_topology("2x1"), std::chrono::milliseconds(200));
  config.links.cluster_link = Link{1e6, 0};  // 9 s
  PeerFabric fabric(config);
  SymBuf<std::byte> memory[2];
  for (int rank : {0, 1}) {
    memory[rank] = fabric.endpoint(rank).allocate<std::byte>(kBytes, "memory");
  }
  const auto job = fabric.endpoint(0).make_transfer(1, true);
  job->set({{memory[1].data(), memory[0].data(), {.row_bytes = kBytes}}});
  job->set_name("push at 'block.3' with rank 1");
  for (int turn = 0; turn < 3; ++turn) {
    job->ask();
    const auto start = std::chrono::steady_clock::now();
    while (!job->take_answer()) {
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "no answer";
    }
    try {
      fabric.rethrow_error();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
      EXPECT_NE(std::string(error.what()).find("9437184 bytes"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("push at 'block.3' with rank 1, has not ended"),
                std::string::npos)
          << error.what();
    }
  }
}

// A path that moves nothing, and answers when the test says so.
class HeldLink : public LinkProxy {
 public:
  explicit HeldLink(JobError& error)
      : LinkProxy({.deadline = std::chrono::seconds(60), .error = error}, 1 << 20) {}
  ~HeldLink() override { stop(); }
  using LinkProxy::start;
  void answer() { answers_ = true; }

 private:
  void begin(Job& job) override { job_ = &job; }
  bool advance() override {
    if (job_ != nullptr && answers_) std::exchange(job_, nullptr)->tell_done();
    return job_ != nullptr;
  }
  void drain() override {}
  std::string progress() const override { return ", 3 of 9 chunks"; }

  Job* job_ = nullptr;
  std::atomic<bool> answers_{false};
};

// The list leaves out a path whose lock is taken, so the test asks until the words come.
bool comes_to_say(HeldLink& link, const std::string& words) {
  const auto start = std::chrono::steady_clock::now();
  while (link.describe_open() != words) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(5)) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(OpenRequests, AreNamedUntilTheirAnswer) {
  if (gpus() == 0) GTEST_SKIP() << "no GPU";
  JobError error;
  HeldLink link(error);
  const auto first = link.make_job(), second = link.make_job();
  std::vector<std::byte> from(512), to(512);
  first->set(
      {{to.data(), from.data(), {.row_bytes = 40, .rows = 5, .dst_stride = 64, .src_stride = 40}},
       {to.data() + 400, from.data(), {.row_bytes = 8}}});
  first->set_name("push at 'block.3' with rank 1");
  EXPECT_EQ(link.describe_open(), "");
  first->ask();
  const std::string open =
      "; a transfer of 208 bytes from cuda:0, push at 'block.3' with rank 1, has not ended: ";
  EXPECT_TRUE(comes_to_say(link, open + "not begun, 3 of 9 chunks")) << link.describe_open();
  second->ask();
  EXPECT_TRUE(comes_to_say(
      link, open + "not begun, 3 of 9 chunks" +
                "; a transfer of 0 bytes from cuda:0 has not ended: " + "not begun, 3 of 9 chunks"))
      << link.describe_open();
  *second->asked() = 0;
  link.start();
  EXPECT_TRUE(comes_to_say(link, open + "under way, 3 of 9 chunks")) << link.describe_open();
  link.answer();
  const auto start = std::chrono::steady_clock::now();
  while (!first->take_answer()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "no answer";
  }
  EXPECT_TRUE(comes_to_say(link, "")) << link.describe_open();
  error.rethrow();
}

// Who frees memory waits for the stream, with the lock that the proxy's copies want: a deadlock, if
// the answer came from the thread that copies alone.
TEST_P(Proxy, AFreeThatWaitsForTheAnswerEnds) {
  if (!cuda::has_queues_for_words()) GTEST_SKIP() << "too few queues";
  const auto job = whole();
  const cuda::DeviceScope scope(fabric_->endpoint(1).device());
  const cuda::OwnedStream stream = cuda::make_stream();
  auto pinned = std::make_unique<cuda::PinnedMemory>(kBytes);
  const cuda::StreamWord word{cuda::StreamWord::Does::wait, job->done(), 1};
  cuda::put_words(stream.get(), {&word, 1});
  std::thread frees([&] { pinned.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job->ask();
  frees.join();
  try {
    fabric_->rethrow_error();  // moved after all
    ASSERT_TRUE(read(1) == host_[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
  }
}

}  // namespace
}  // namespace braid::fabric
