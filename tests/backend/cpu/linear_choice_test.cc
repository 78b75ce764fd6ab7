// choose_linear and linear_scratch_bytes as pure functions, and what linear() refuses.

#include "backend/cpu/linear_case.h"

namespace braid::cpu::linear_test {
namespace {

LinearDesc describe(int64_t M, int64_t K, std::span<const LinearDesc::Weight> weights,
                    int threads) {
  return {.M = M, .K = K, .weights = weights, .gate = Gate::none, .threads = threads};
}

TEST(LinearChoiceTest, FewRowsStreamManyRowsArePaneled) {
  const LinearDesc::Weight w{DType::q4_1, 576};
  for (LinearIsa isa : usable_linear_isas()) {
    EXPECT_EQ(choose_linear(describe(1, 576, {&w, 1}, 2), isa).path, LinearPath::stream);
    EXPECT_EQ(choose_linear(describe(512, 576, {&w, 1}, 2), isa).path, LinearPath::panel);
  }
  EXPECT_EQ(to_string(choose_linear(describe(1, 576, {&w, 1}, 2), LinearIsa::baseline)),
            "baseline stream, own pack");
  EXPECT_EQ(to_string(choose_linear(describe(512, 576, {&w, 1}, 1), LinearIsa::baseline)),
            "baseline panel, own pack, chunk 528, k_block 576");
}

// One thread packs alone: there is nobody to share with, and nothing to wait for.
TEST(LinearChoiceTest, PackIsSharedWhereItIsLarge) {
  const LinearDesc::Weight w{DType::q4_1, 576};
  EXPECT_FALSE(choose_linear(describe(1, 1536, {&w, 1}, 2), LinearIsa::baseline).shared_pack);
  EXPECT_TRUE(choose_linear(describe(512, 1536, {&w, 1}, 2), LinearIsa::baseline).shared_pack);
  EXPECT_FALSE(choose_linear(describe(512, 1536, {&w, 1}, 1), LinearIsa::baseline).shared_pack);
}

// A narrow weight on many threads is cut along x too, until no thread idles for long.
TEST(LinearChoiceTest, NarrowWeightsAreCutAlongX) {
  for (int64_t N : {64, 192, 576, 2048}) {
    for (int threads : {2, 3, 4, 8, 13, 16}) {
      const LinearDesc::Weight w{DType::q4_1, N};
      const LinearConfig c =
          choose_linear(describe(512, 576, {&w, 1}, threads), LinearIsa::baseline);
      const int64_t panels = ceil_div(N, 8);  // of the baseline
      const int64_t items = panels * ceil_div(512, c.chunk);
      const int64_t whole = panels * ceil_div(512, 528);
      const auto busy = [&](int64_t n) {
        return static_cast<double>(n) / static_cast<double>(round_up(n, threads));
      };
      EXPECT_GE(busy(items), std::max(busy(whole), 0.8)) << to_string(c) << " threads " << threads;
    }
  }
}

TEST(LinearChoiceTest, ScratchNeverShrinksWithM) {
  for (DType dtype : kDTypes) {
    const LinearDesc::Weight w[] = {{dtype, 576}, {DType::q6_k, 576}};
    for (LinearIsa isa : usable_linear_isas()) {
      for (int threads : {1, 2, 7}) {
        int64_t last = 0;
        for (int64_t M = 1; M < 1200; M += 1 + M / 7) {
          const int64_t bytes = linear_scratch_bytes(describe(M, 768, w, threads), isa);
          EXPECT_GE(bytes, last) << name(dtype) << " M " << M;
          last = bytes;
        }
      }
    }
  }
}

std::string refusal(const LinearParams& params) {
  std::byte scratch[64];
  try {
    linear(params, {.isa = LinearIsa::baseline}, scratch, Team{});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "accepted";
}

TEST(LinearChoiceTest, WrongShapesAreNamed) {
  std::vector<std::byte> bytes(4096);
  const auto weight = [&](DType dtype, int64_t N, int64_t K) {
    return LinearWeight{.w = make_view(bytes.data(), dtype, {N, K})};
  };
  const LinearWeight narrow = weight(DType::q4_0, 4, 32);
  EXPECT_EQ(refusal({.ldx = 64, .M = 1, .K = 64, .weights = {&narrow, 1}}),
            "linear: weight q4_0 [4, 32] with rows 18 bytes apart, x has K 64");
  const LinearWeight ints = weight(DType::i32, 4, 32);
  EXPECT_EQ(refusal({.ldx = 32, .M = 1, .K = 32, .weights = {&ints, 1}}),
            "linear: weight i32 [4, 32] with rows 128 bytes apart, x has K 32");
  EXPECT_EQ(refusal({.ldx = 32, .M = 1, .K = 32}), "linear: 0 weights, allowed are 1 to 8");
  EXPECT_EQ(refusal({.ldx = 16, .M = 1, .K = 32, .weights = {&narrow, 1}}),
            "linear: x [1, 32] with rows 16 apart");
  EXPECT_EQ(refusal({.ldx = 32, .M = 1, .K = 32, .weights = {&narrow, 1}, .gate = Gate::silu}),
            "linear: a gate takes two weights of equal N, got 1");
  const float residual = 0;
  const LinearWeight two[] = {narrow, narrow};
  EXPECT_EQ(refusal({.ldx = 32, .M = 1, .K = 32, .weights = two, .residual = &residual}),
            "linear: a residual with 2 outputs, allowed is 1");
}

TEST(LinearChoiceTest, NoRowsIsNoWork) {
  std::vector<std::byte> bytes(4096);
  const LinearWeight w{.w = make_view(bytes.data(), DType::q4_0, {4, 32})};
  EXPECT_EQ(refusal({.ldx = 32, .M = 0, .K = 32, .weights = {&w, 1}}), "accepted");
}

TEST(LinearIsaTest, BestStaysUnderTheCap) {
  EXPECT_EQ(best_linear_isa(Isa::baseline), LinearIsa::baseline);
  EXPECT_LT(best_linear_isa(Isa::avx2), LinearIsa::avx512);
  EXPECT_EQ(best_linear_isa(), usable_linear_isas().back());
}

}  // namespace
}  // namespace braid::cpu::linear_test
