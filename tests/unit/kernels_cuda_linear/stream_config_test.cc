#include "braid/kernels/cuda/linear/stream_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace braid::cuda {
namespace {

constexpr int64_t kSharedOfSm = 228 << 10;  // Hopper
constexpr int64_t kReserved = 1 << 10;      // of each CTA, by the driver
constexpr int64_t kStaticShared = kStreamMaxTokens * kStreamWarps * 4;

// What any config must satisfy for the kernel to be right: it divides the units over the CTAs as
// evenly as whole ones allow, and keeps what it needs of each in shared memory.
void check(const StreamShape& s, int num_sms) {
  const StreamConfig c = choose_stream(s, num_sms);
  SCOPED_TRACE(fmt::format("k {} units {} tokens {}{}, {} SMs: {}", s.k, s.units, s.tokens,
                           s.gated ? " gated" : "", num_sms, to_string(c)));
  ASSERT_GE(c.ctas, 1);
  ASSERT_LE(c.ctas, s.units) << "a CTA without work";
  const int64_t most = s.units / c.ctas + (s.units % c.ctas != 0 ? 1 : 0);
  EXPECT_EQ(c.rows, (s.gated ? 2 : 1) * most);
  EXPECT_GE(int64_t{c.ctas} * c.rows, s.units * (s.gated ? 2 : 1)) << "units are left out";
  const int64_t starts = stream_starts_bytes(c.rows);
  EXPECT_GE(starts, c.rows * int64_t{sizeof(void*)});
  EXPECT_EQ(starts % 128, 0) << "x is read in 16 bytes";
  EXPECT_GE(stream_pitch(s.k), 2 * s.k);
  EXPECT_EQ(stream_pitch(s.k) % (2 * kStreamChunk), 0) << "a warp reads whole chunks";
  const int64_t sums = int64_t{c.rows} * kStreamWarps * s.tokens * int64_t{sizeof(float)};
  EXPECT_GE(c.shared_bytes, starts + s.tokens * stream_pitch(s.k) + sums);
  EXPECT_LE(4 * (c.shared_bytes + kStaticShared + kReserved), kSharedOfSm) << "4 CTAs of an SM";
  // One round of CTAs, unless that would not fit.
  if (c.ctas > 4 * num_sms) {
    const int64_t rows = (s.units + 4 * num_sms - 1) / (4 * num_sms) * (s.gated ? 2 : 1);
    EXPECT_GT(stream_starts_bytes(static_cast<int>(rows)) + s.tokens * stream_pitch(s.k) +
                  rows * kStreamWarps * s.tokens * 4,
              54 << 10);
  } else {
    EXPECT_EQ(c.ctas, std::min<int64_t>(4 * num_sms, s.units));
  }
}

TEST(StreamConfig, EveryShapeThatIsTakenFits) {
  int taken = 0, rounds = 0;
  for (const int num_sms : {1, 78, 108, 132}) {
    for (const int64_t k : {8, 24, 248, 256, 264, 1536, 4096, 4104, 11008, 14336, 26112}) {
      for (const int64_t units : {1, 2, 131, 132, 527, 528, 529, 4096, 12288, 22016, 128256}) {
        for (const int tokens : {1, 2, 3, 4}) {
          for (const bool gated : {false, true}) {
            const StreamShape shape = {.gated = gated, .k = k, .units = units, .tokens = tokens};
            if (!stream_takes(shape)) continue;
            check(shape, num_sms);
            ++taken;
            rounds += choose_stream(shape, num_sms).ctas > 4 * num_sms ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(taken, 2000);
  EXPECT_GT(rounds, 10) << "the sweep has no shape whose sums need more rounds";
}

TEST(StreamConfig, TakesFewTokensOfBf16) {
  const StreamShape good = {.k = 4096, .units = 4096};
  EXPECT_TRUE(stream_takes(good));
  for (const int tokens : {1, 2, 3, 4}) {
    StreamShape s = good;
    s.tokens = tokens;
    EXPECT_TRUE(stream_takes(s)) << tokens;
  }
  const auto refuses = [&](auto&& change) {
    StreamShape s = good;
    change(s);
    return !stream_takes(s);
  };
  EXPECT_TRUE(refuses([](StreamShape& s) { s.tokens = 5; }));
  EXPECT_TRUE(refuses([](StreamShape& s) { s.aligned = false; }));
  for (const int64_t k : {4095, 4097, 4100, 4092}) {
    EXPECT_TRUE(refuses([&](StreamShape& s) { s.k = k; })) << k;
  }
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(refuses([&](StreamShape& s) { s.dtype = dtype; }), dtype != DType::bf16);
  }
}

// x and the sums of 32 rows within 54 KB.
TEST(StreamConfig, TakesAnXThatFitsBesideOtherCtas) {
  const auto most_k = [](int tokens) {
    int64_t k = 8;
    while (stream_takes({.k = k + 8, .units = 1, .tokens = tokens})) k += 8;
    return k;
  };
  EXPECT_EQ(most_k(1), 27136);  // 53 KB: 106 chunks, of 512 bytes
  EXPECT_EQ(most_k(2), 13312);  // 52 KB: 52 chunks of each token
  EXPECT_EQ(most_k(4), 6400);   // 50 KB: 25 chunks of each token
  for (const int tokens : {1, 2, 4}) {
    for (const bool gated : {false, true}) {
      check({.gated = gated, .k = most_k(tokens), .units = 50000, .tokens = tokens}, 132);
    }
  }
}

TEST(StreamConfig, Printable) {
  EXPECT_EQ(to_string(StreamConfig{.ctas = 264, .rows = 16}), "stream 264 x 16 rows");
  EXPECT_EQ(to_string(choose_stream({.gated = true, .k = 4096, .units = 11008}, 132)),
            "stream 528 x 42 rows");
}

}  // namespace
}  // namespace braid::cuda
