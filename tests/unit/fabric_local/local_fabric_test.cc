#include "braid/fabric/local/local_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "braid/fabric/local/run_ranks.h"

namespace braid::fabric {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Error error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInvalidArgument, "no error");
}

TEST(LocalFabric, MemoryIsSymmetricZeroedAndAligned) {
  run_ranks(3, [](Endpoint& e) {
    const auto buf = e.allocate<float>(5, "buf");
    EXPECT_EQ(buf.size(), 5);
    for (float x : buf.local()) EXPECT_EQ(x, 0.0f);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buf.peer(peer)) % 64, 0u);
    }
    EXPECT_EQ(buf.peer(e.rank()), buf.data());
    EXPECT_NO_THROW(e.allocate<float>(0, "empty"));
  });
}

TEST(LocalFabric, RefusesImpossibleSizes) {
  run_ranks(1, [](Endpoint& e) {
    EXPECT_EQ(error_of([&] { e.allocate<float>(-1, "negative"); }).code(),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of([&] { e.allocate<double>(int64_t{1} << 61, "overflow"); }).code(),
              ErrorCode::kInvalidArgument);
  });
  const Error huge = error_of(
      [] { run_ranks(2, [](Endpoint& e) { e.allocate<double>(int64_t{1} << 55, "huge"); }); });
  EXPECT_EQ(huge.code(), ErrorCode::kResource);
  EXPECT_THROW(LocalFabric({.ranks = 0}), Error);
  EXPECT_THROW(LocalFabric({.ranks = 1 << 20}), Error);
  EXPECT_THROW(LocalFabric({.ranks = 2, .deadline = Duration(0)}), Error);
}

TEST(LocalFabric, AnEmulatedPeerCannotBeMapped) {
  const LocalFabricConfig config{.ranks = 4,
                                 .links = {.machines = 2, .cluster_link = Link{10e9, 1e-6}}};
  run_ranks(config, [](Endpoint& e) {
    const auto buf = e.allocate<float>(4, "buf");
    const int neighbour = e.rank() ^ 1;
    const int far = e.rank() ^ 2;
    EXPECT_NE(buf.peer(neighbour), nullptr);
    const Error error = error_of([&] { buf.peer(far); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {} cannot map", e.rank())));
  });
}

TEST(LocalFabric, AnyExceptionIsRethrownAsItIs) {
  EXPECT_THROW(run_ranks(2,
                         [](Endpoint& e) {
                           if (e.rank() == 1) throw std::out_of_range("x");
                         }),
               std::out_of_range);
  EXPECT_THROW(run_ranks(2,
                         [](Endpoint& e) {
                           const auto slots = e.allocate<Signal>(1, "slots");
                           if (e.rank() == 1) throw 42;
                           e.wait(slots.at(), 1, {});
                         }),
               int);
}

TEST(LocalFabric, SaysWhatItIs) {
  EXPECT_EQ(LocalFabric({.ranks = 2}).describe(), "local fabric, 2 ranks, 1 machine x 2 devices");
}

TEST(LocalFabric, GivesUpTheCoreSoonerWhereCoresAreShort) {
  const cpu::WaitPolicy dedicated = default_wait(2, 2, false);
  const cpu::WaitPolicy shared = default_wait(3, 2, false);
  const cpu::WaitPolicy emulated = default_wait(2, 2, true);
  EXPECT_GT(dedicated.spin, shared.spin);
  EXPECT_GT(dedicated.yields, shared.yields);
  EXPECT_EQ(emulated.yields, 0);
}

}  // namespace
}  // namespace braid::fabric
