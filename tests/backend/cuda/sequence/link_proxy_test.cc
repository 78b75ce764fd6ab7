// The adapter of an emulated machine moves what it is asked for, bitwise, in the order of asking;
// so does one that copies directly.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "braid/fabric/peer/peer_fabric.h"

namespace braid::fabric {
namespace {

constexpr int64_t kBytes = 9 << 20;

class Proxy : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      cudaGetLastError();
      GTEST_SKIP() << "no GPU";
    }
    PeerFabricConfig config{
        .ranks = 2, .deadline = std::chrono::seconds(10), .share_devices = count < 2};
    if (!GetParam()) {
      config.links.machines = 2;
      config.links.cluster_link = Link{40e9, 3e-6};
    }
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
  static void ask(LinkProxy::Job& job) { std::atomic_ref(*job.asked()).fetch_add(1); }
  void wait(LinkProxy::Job& job) {
    const auto start = std::chrono::steady_clock::now();
    while (std::atomic_ref(*job.done()).load(std::memory_order_acquire) !=
           std::atomic_ref(*job.asked()).load()) {
      fabric_->endpoint(0).check();
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "no answer";
    }
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
    ask(*job);
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
    ask(*first);
    while (std::atomic_ref(*first->done()).load() + 1 < std::atomic_ref(*first->asked()).load()) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(turn * 20));
    ask(*second);
    ask(*nothing);
    wait(*nothing);
    wait(*second);
    ASSERT_EQ(std::atomic_ref(*first->done()).load(), std::atomic_ref(*first->asked()).load());
    std::vector<std::byte> want = host_[1];
    std::memcpy(want.data(), host_[0].data(), 4 << 20);
    std::memcpy(want.data() + (1 << 20), host_[0].data(), 100);
    std::memcpy(want.data() + (3 << 20), host_[0].data() + 5, 1 << 20);
    ASSERT_TRUE(read(1) == want) << "turn " << turn;
    write(1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Proxy, testing::Bool(),
                         [](const auto& info) { return info.param ? "direct" : "adapter"; });

}  // namespace
}  // namespace braid::fabric
