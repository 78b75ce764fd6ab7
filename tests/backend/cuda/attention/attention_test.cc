#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backend/cuda/attention/attention_case.h"

namespace braid::cuda::test {
namespace {

// Every kernel that takes the call against the f64 reference, twice for bitwise equality, and
// against each other over all rows.
void check_all(const CaseSpec& spec, int max_rows = 60) {
  Case c(spec);
  std::vector<uint8_t> first;
  for (const AttentionConfig& config :
       candidates(c.desc(), c.device_params(), attention_device())) {
    SCOPED_TRACE(
        fmt::format("{} as {}, seed {}", to_string(c.desc()), to_string(config), spec.seed));
    c.run(config);
    const std::string bad = c.check(max_rows);
    ASSERT_EQ(bad, "");
    const std::vector<uint8_t> once = c.result();
    c.run(config);
    ASSERT_TRUE(once == c.result()) << "two runs differ";
    if (c.desc().finalize) {
      if (first.empty()) first = once;
      EXPECT_LE(c.distance(first), 8.) << "kernels disagree";
    }
  }
}

TEST(Attention, SweepOfLengths) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (auto [lq, lk] : {std::pair{1, 1},
                          {1, 257},
                          {17, 16},
                          {64, 64},
                          {65, 176},
                          {128, 128},
                          {129, 177},
                          {200, 353},
                          {193, 1000},
                          {577, 511}}) {
      CaseSpec spec;
      spec.desc = make_desc(d.qk, d.v, 2, 2);
      spec.q_lengths = {lq};
      spec.kv_lengths = {lk};
      spec.seed = lq * 1000 + lk;
      check_all(spec, 24);
    }
  }
}

TEST(Attention, Half) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    CaseSpec spec;
    spec.desc = make_desc(d.qk, d.v, 3, 1, DType::f16, 2);
    spec.desc.window_right = 0;
    spec.q_lengths = {300};
    spec.kv_lengths = {300};
    check_all(spec);
  }
}

TEST(Attention, CausalAndWindows) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (auto [left, right] : {std::pair{-1, 0}, {64, 0}, {0, 0}, {100, 37}, {-1, 5}, {33, -1}}) {
      for (int offset : {0, 211}) {
        CaseSpec spec;
        spec.desc = make_desc(d.qk, d.v, 4, 2, DType::bf16, 2);
        spec.desc.window_left = left;
        spec.desc.window_right = right;
        spec.q_lengths = {401};
        spec.q_offsets = {offset};
        spec.kv_lengths = {401 + offset};
        spec.head_strided = offset > 0;
        spec.seed = left * 31 + right * 7 + offset;
        check_all(spec, 30);
      }
    }
  }
}

TEST(Attention, GroupedHeads) {
  REQUIRE_DEVICE();
  for (auto [hq, hkv] : {std::pair{9, 3}, {8, 1}, {64, 8}, {5, 1}, {32, 1}}) {
    for (int lq : {1, 7, 40, 150}) {
      CaseSpec spec;
      spec.desc = make_desc(64, 64, hq, hkv);
      spec.desc.window_right = 0;
      spec.q_lengths = {lq};
      spec.q_offsets = {333};
      spec.kv_lengths = {333 + lq};
      spec.seed = hq * 100 + lq;
      check_all(spec, 30);
    }
  }
}

TEST(Attention, Paged) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (int page : {16, 32, 48, 64, 128, 256}) {
      CaseSpec spec;
      spec.desc = make_desc(d.qk, d.v, 4, 2, DType::bf16, 3);
      spec.desc.page_size = page;
      spec.desc.window_right = 0;
      spec.q_lengths = {70};
      spec.q_offsets = {430};
      spec.kv_lengths = {500};
      spec.device_lengths = true;
      spec.seed = page;
      check_all(spec, 30);
    }
  }
}

TEST(Attention, RaggedBatch) {
  REQUIRE_DEVICE();
  for (int page : {0, 16}) {
    CaseSpec spec;
    spec.desc = make_desc(128, 128, 6, 2, DType::bf16, 7);
    spec.desc.page_size = page;
    spec.desc.window_right = 0;
    spec.q_lengths = {150};
    spec.kv_lengths = {190};
    spec.ragged = true;
    spec.device_lengths = true;
    check_all(spec, 100);
  }
}

TEST(Attention, Segments) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (bool causal : {false, true}) {
      CaseSpec spec;
      spec.desc = make_desc(d.qk, d.v, 2, 1, DType::bf16, 2);
      if (causal) spec.desc.window_right = 0;
      spec.q_lengths = {130, 0, 1, 77};
      spec.q_offsets = {0, 0, 500, 300};
      spec.kv_lengths = {100, 0, 33, 129, 64, 7};
      spec.sees = {{0, 6}, {0, 6}, {2, 4}, {1, 2}};  // the last sees only an empty segment
      check_all(spec);
    }
  }
}

// Tiles that go on from one Q segment to the next.
TEST(Attention, SegmentsShareTiles) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (bool causal : {false, true}) {
      for (int group : {1, 3}) {
        CaseSpec spec;
        spec.desc = make_desc(d.qk, d.v, group, 1, DType::bf16, 2);
        if (causal) spec.desc.window_right = 0;
        spec.q_lengths = {70, 10, 0, 130, 64, 1, 33, 200};
        spec.q_offsets = {40, 110, 0, 120, 250, 314, 315, causal ? 300 : 0};
        spec.kv_lengths = {200, 150, 158};
        spec.head_strided = group == 3;
        check_all(spec, 60);
      }
    }
  }
}

// Tiles of keys that go on from one KV segment to the next, wherever these lie.
TEST(Attention, KeySegmentsShareTiles) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (auto [left, right] : {std::pair{-1, -1}, {-1, 0}, {90, 40}}) {
      for (int gap : {0, 3}) {  // in position: under a window, such segments share no tile
        CaseSpec spec;
        spec.desc = make_desc(d.qk, d.v, 2, 1, DType::bf16, 2);
        spec.desc.window_left = left;
        spec.desc.window_right = right;
        spec.q_lengths = {130, 200};
        spec.q_offsets = {100, 430};
        spec.kv_lengths = {72, 8, 0, 264, 16, 136, 41, 50, 24, 19};
        int position = 0;
        for (int n : spec.kv_lengths) {
          spec.kv_offsets.push_back(position);
          position += n + gap;
        }
        if (left < 0 && right < 0) spec.sees = {{0, 10}, {2, 6}};  // runs end where one's keys do
        spec.head_strided = gap > 0;
        spec.seed = 100 + gap;
        check_all(spec, 40);
      }
    }
  }
}

// A state without keys may hold anything, and is written where a call sees no key.
TEST(Attention, StateWithoutKeys) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (bool finalize : {true, false}) {
      CaseSpec spec;
      spec.desc = make_desc(d.qk, d.v, 2, 1);
      spec.desc.window_right = 0;
      spec.desc.load_state = true;
      spec.desc.finalize = finalize;
      spec.empty_state = true;
      spec.q_lengths = {200, 65};
      spec.q_offsets = {100, 20};
      spec.kv_lengths = {150};
      spec.kv_offsets = {200};  // queries before 200 see nothing
      check_all(spec, 265);
    }
  }
}

TEST(Attention, FullyMaskedRows) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    CaseSpec spec;
    spec.desc = make_desc(d.qk, d.v, 2, 2);
    spec.desc.window_right = 0;
    spec.q_lengths = {300};
    spec.kv_lengths = {150};
    spec.kv_offsets = {100};  // queries 0..99 see nothing, and so does a part of a tile
    check_all(spec, 300);
  }
}

TEST(Attention, Adversarial) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (Inputs inputs : {Inputs::kLargeLogits, Inputs::kDominantKey}) {
      CaseSpec spec;
      spec.desc = make_desc(d.qk, d.v, 2, 1);
      spec.q_lengths = {150};
      spec.kv_lengths = {700};
      spec.inputs = inputs;
      check_all(spec);
    }
  }
}

TEST(Attention, CarriedState) {
  REQUIRE_DEVICE();
  for (const Dims& d : kDims) {
    for (DType state : {DType::f32, DType::bf16}) {
      for (bool causal : {false, true}) {
        CaseSpec spec;
        spec.desc = make_desc(d.qk, d.v, 2, 1, DType::bf16, 2);
        spec.desc.state_dtype = state;
        if (causal) spec.desc.window_right = 0;
        spec.q_lengths = {130, 70};
        spec.q_offsets = {0, 200};
        spec.kv_lengths = {90, 100, 0, 211, 64};
        Case c(spec);
        AttentionDesc carries = c.desc();
        carries.load_state = true;  // kernels that are there for carried states take part
        for (const AttentionConfig& config :
             candidates(carries, c.device_params(), attention_device())) {
          for (int calls : {2, 4, 5}) {
            SCOPED_TRACE(
                fmt::format("{} as {} in {} calls", to_string(c.desc()), to_string(config), calls));
            c.run_chain(config, calls);
            ASSERT_EQ(c.check(40), "");
          }
        }
        spec.desc.finalize = false;  // what is carried is right by itself too
        check_all(spec, 40);
      }
    }
  }
}

// The checker itself: a result with one wrong element, and one with a byte outside, are refused.
TEST(Attention, CheckerCatches) {
  REQUIRE_DEVICE();
  CaseSpec spec;
  spec.desc = make_desc(64, 64, 1, 1);
  spec.q_lengths = {64};
  spec.kv_lengths = {64};
  Case good(spec);
  const auto configs = candidates(good.desc(), good.device_params(), attention_device());
  good.run(configs[0]);
  ASSERT_EQ(good.check(64), "");
  CaseSpec other = spec;
  other.desc.scale *= 1.05f;  // the device computes with another scale than the reference's
  Case wrong(other);
  wrong.run(configs[0]);
  EXPECT_GT(good.distance(wrong.result()), 8.);
}

// One random call after another, from a seed that is printed.
TEST(Attention, Random) {
  REQUIRE_DEVICE();
  const char* seed_text = std::getenv("BRAID_TEST_SEED");
  const uint64_t base = seed_text ? std::strtoull(seed_text, nullptr, 10) : 20251;
  for (int i = 0; i < 60; ++i) {
    uint64_t x = base * 1000 + i;
    const auto pick = [&](int n) {
      x = x * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<int>((x >> 33) % n);
    };
    const Dims d = kDims[pick(5)];
    CaseSpec spec;
    const int hkv = 1 + pick(3);
    spec.desc = make_desc(d.qk, d.v, hkv * (1 + pick(5)), hkv, pick(2) ? DType::bf16 : DType::f16,
                          1 + pick(3));
    if (pick(2)) spec.desc.window_right = pick(3) ? 0 : pick(100);
    if (pick(4) == 0) spec.desc.window_left = pick(300);
    const int pages[] = {0, 0, 16, 64, 128};
    spec.desc.page_size = pages[pick(5)];
    spec.device_lengths = pick(2);
    spec.head_strided = pick(2);
    spec.ragged = pick(4) == 0;
    for (int n = 1 + pick(3); n > 0; --n) {
      spec.q_lengths.push_back(pick(260));
      spec.q_offsets.push_back(pick(400));
    }
    for (int n = 1 + pick(4); n > 0; --n) spec.kv_lengths.push_back(pick(300));
    spec.seed = x;
    SCOPED_TRACE(fmt::format("BRAID_TEST_SEED={} case {}", base, i));
    check_all(spec, 12);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace braid::cuda::test
