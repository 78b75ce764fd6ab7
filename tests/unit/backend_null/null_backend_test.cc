#include "braid/backend/null/null_backend.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(NullBackend, MemoryIsRealAndZeroed) {
  NullBackend backend;
  for (int64_t bytes : {0, 1, 4097}) {
    const auto memory = backend.allocate(bytes);
    EXPECT_GE(memory->bytes(), bytes);
    for (int64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(memory->data()[i], std::byte{0});
      memory->data()[i] = std::byte{1};
    }
  }
  EXPECT_THROW(backend.allocate(int64_t{1} << 60), Error);
}

TEST(NullBackend, ARunReturnsAtOnceAndTakesNoTime) {
  NullBackend backend;
  const OpDef def = {.kind = "nothing"};
  const Op op = {.def = &def};
  EXPECT_EQ(backend.catalog().find({}, op, Stream::compute, {}).name, "nothing");
  EXPECT_EQ(backend.catalog().find({}, op, Stream::side, {}).workspace_bytes, 0);
  const auto replay = backend.bind(
      {.launches = {{.op = &op}, {.op = &op, .stream = Stream::comm}}, .parts = {}, .inputs = {}});
  replay->run();
  std::vector<LaunchTime> times(2, LaunchTime{7, 9});
  replay->run(times);
  for (const LaunchTime& time : times) EXPECT_EQ(time.end - time.begin, 0);
}

}  // namespace
}  // namespace braid
