#include "braid/kernels/cuda/latent/latent_config.h"

#include <gtest/gtest.h>

#include "unit/io/expect_error.h"

namespace braid::cuda {
namespace {

TEST(LatentConfig, FitsAndFillsTheGpu) {
  for (const int64_t heads : {1, 3, 16, 20, 128}) {
    for (const int64_t tokens : {1, 2, 16, 64, 100, 8192}) {
      for (const int64_t sequences : {int64_t{1}, int64_t{16}, tokens}) {
        const LatentShape s = {
            .tokens = tokens, .sequences = sequences, .heads = heads, .latent = 512, .rope = 64};
        const LatentConfig c = choose_latent(s, {});
        SCOPED_TRACE(to_string(c));
        EXPECT_TRUE(c.rows == 16 || c.rows == 32 || c.rows == 64);
        EXPECT_GE(c.shares, 1);
        EXPECT_LE(c.shares, kMaxLatentShares);
        EXPECT_LE(latent_smem(c.rows, 512, 64).total, LatentDevice{}.shared_bytes);
        EXPECT_GE(latent_blocks(s, c.rows) * c.rows, tokens * heads) << "rows are left out";
        EXPECT_EQ(latent_workspace_bytes(s, c) == 0, c.shares == 1);
      }
    }
  }
  const auto decode = [](int64_t B) {
    return to_string(
        choose_latent({.tokens = B, .sequences = B, .heads = 16, .latent = 512, .rope = 64}, {}));
  };
  EXPECT_EQ(decode(1), "latent 16 rows, keys / 64");
  EXPECT_EQ(decode(16), "latent 16 rows, keys / 8");
  EXPECT_EQ(decode(64), "latent 16 rows, keys / 2");
}

TEST(LatentConfig, APromptAloneTakesThePlainForm) {
  const LatentPlainShape lite = {.tokens = 8192,
                                 .keys = 163840,
                                 .heads = 16,
                                 .nope = 128,
                                 .rope = 64,
                                 .value = 128,
                                 .latent = 512};
  EXPECT_TRUE(takes_latent_plain(lite));
  const auto with = [&](auto&& change) {
    LatentPlainShape s = lite;
    change(s);
    return takes_latent_plain(s);
  };
  EXPECT_FALSE(with([](auto& s) { s.tokens = kFewestPlainRows - 1; }));
  EXPECT_FALSE(with([](auto& s) { s.sequences = 8; }));
  EXPECT_FALSE(with([](auto& s) { s.keys = 200000; })) << "more scratch than allowed";
  EXPECT_FALSE(with([](auto& s) { s.value = 64; })) << "heads that segment attention lacks";
  const LatentPlainScratch at(lite);
  EXPECT_EQ(at.keys, int64_t{163840} * 576 * 2);
  EXPECT_EQ(at.queries - at.keys, int64_t{163840} * 16 * 320 * 2);
  EXPECT_LE(at.total, kMostPlainBytes);
}

TEST(LatentConfig, RefusesWhatNoKernelHas) {
  using test::expect_error;
  const auto choose = [](int64_t latent, int64_t rope, int64_t bytes = 232448) {
    choose_latent({.heads = 16, .latent = latent, .rope = rope}, {.shared_bytes = bytes});
  };
  expect_error(ErrorCode::kUnsupported, {"latents' width is 520", "up to 512"},
               [&] { choose(520, 8); });
  expect_error(ErrorCode::kUnsupported, {"latents' width is 20", "multiple of 8"},
               [&] { choose(20, 4); });
  expect_error(ErrorCode::kUnsupported, {"keys' width is 640", "up to 576"},
               [&] { choose(512, 128); });
  expect_error(ErrorCode::kUnsupported, {"shared memory", "this GPU has 166912"},
               [&] { choose(512, 64, 166912); });
}

}  // namespace
}  // namespace braid::cuda
