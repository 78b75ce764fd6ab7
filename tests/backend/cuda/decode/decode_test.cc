#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cuda/decode/decode_case.h"
#include "backend/cuda/decode/late_writer.h"

namespace braid::cuda::test {
namespace {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define REQUIRE_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device"

DecodeSpec make_spec(int q_heads, int kv_heads, int head_dim, std::vector<Lengths> live,
                     uint64_t seed = 1) {
  DecodeSpec s;
  s.q_heads = q_heads;
  s.kv_heads = kv_heads;
  s.attrs.head_dim = head_dim;
  s.attrs.group = q_heads / kv_heads;
  s.attrs.scale = 1.f / std::sqrt(static_cast<float>(head_dim));
  s.live = std::move(live);
  s.seed = seed;
  return s;
}

std::string describe(const DecodeCase& c, const DecodeSpec& spec, const DecodeConfig& config) {
  std::string lengths;
  for (const Lengths& l : spec.live) lengths += fmt::format(" {}/{}", l.q_len, l.kv_len);
  return fmt::format("{} as {}, lengths{}, seed {}", to_string(c.desc()), to_string(config),
                     lengths, spec.seed);
}

// Every configuration against the reference, and twice for bitwise equality.
void check_all(const DecodeSpec& spec) {
  DecodeCase c(spec);
  for (const DecodeConfig& config : candidates(c.desc(), decode_device())) {
    SCOPED_TRACE(describe(c, spec, config));
    c.run(config);
    ASSERT_EQ(c.check(), "");
    const std::vector<std::byte> once = c.output();
    c.run(config);
    ASSERT_TRUE(once == c.output()) << "two runs differ";
  }
}

constexpr int kHeadDims[] = {64, 96, 128, 256};
constexpr int kContexts[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000};

TEST(Decode, OneSequence) {
  REQUIRE_DEVICE();
  for (int head_dim : kHeadDims) {
    for (int context : kContexts) {
      check_all(make_spec(6, 2, head_dim, {{1, context}}, static_cast<uint64_t>(context)));
    }
  }
}

TEST(Decode, HeadsAndMixedLengths) {
  REQUIRE_DEVICE();
  for (auto [hq, hkv] : {std::pair{9, 3}, {32, 32}, {32, 8}, {64, 8}, {5, 1}, {8, 1}, {16, 1}}) {
    for (int head_dim : {64, 128}) {
      DecodeSpec spec = make_spec(hq, hkv, head_dim, {});
      spec.seed = static_cast<uint64_t>(hq * 100 + head_dim);
      std::mt19937 rng(static_cast<unsigned>(spec.seed));
      for (int s = 0; s < 1 + static_cast<int>(rng() % 9); ++s) {
        spec.live.push_back({1, kContexts[rng() % std::size(kContexts)]});
      }
      spec.spare_sequences = static_cast<int>(rng() % 4);
      spec.spare_tokens = static_cast<int>(rng() % 3);
      check_all(spec);
    }
  }
}

TEST(Decode, LongContext) {
  REQUIRE_DEVICE();
  check_all(make_spec(8, 8, 128, {{1, 4097}}));
  check_all(make_spec(8, 1, 128, {{1, 4097}, {1, 3}, {1, 9000}}));
  check_all(make_spec(4, 2, 256, {{1, 4097}}));
  check_all(make_spec(9, 3, 64, {{1, 4097}, {1, 8191}}));
}

TEST(Decode, SeveralTokens) {
  REQUIRE_DEVICE();
  for (int head_dim : kHeadDims) {
    for (auto [hq, hkv] : {std::pair{4, 4}, {9, 3}, {16, 2}}) {
      DecodeSpec spec = make_spec(
          hq, hkv, head_dim, {{3, 3}, {8, 100}, {1, 17}, {5, 65}, {0, 40}, {2, 500}, {40, 300}});
      spec.seed = static_cast<uint64_t>(head_dim + hq);
      check_all(spec);
    }
  }
}

TEST(Decode, WindowsAndSoftcap) {
  REQUIRE_DEVICE();
  for (int head_dim : kHeadDims) {
    for (int window : {1, 16, 100, 4096}) {
      DecodeSpec spec = make_spec(6, 2, head_dim, {{1, 1}, {1, 17}, {1, 1000}, {4, 333}});
      spec.attrs.window = window;
      spec.attrs.softcap = window == 100 ? 3.f : 0.f;
      spec.seed = static_cast<uint64_t>(head_dim + window);
      check_all(spec);
    }
  }
}

TEST(Decode, DTypesAndPages) {
  REQUIRE_DEVICE();
  for (DType cache : {DType::bf16, DType::f16}) {
    for (int page : {16, 24, 64, 256}) {
      for (bool wide : {false, true}) {
        DecodeSpec spec = make_spec(8, 2, 64 + 64 * wide, {{1, 300}, {2, 77}, {1, 256}, {1, 16}});
        spec.cache_dtype = cache;
        spec.page_size = page;
        spec.q_dtype = spec.out_dtype = wide ? DType::f32 : DType::bf16;
        spec.seed = static_cast<uint64_t>(page);
        check_all(spec);
      }
    }
  }
}

// Parts of the heads that begin or end inside a group.
TEST(Decode, UnevenHeads) {
  REQUIRE_DEVICE();
  for (int offset = 0; offset < 5; ++offset) {
    DecodeSpec spec = make_spec(4, 1, 64, {{1, 200}, {2, 65}});
    spec.attrs.group = 3;
    spec.attrs.head_offset = offset;
    spec.kv_heads = 3;
    spec.seed = static_cast<uint64_t>(offset);
    check_all(spec);
  }
}

TEST(Decode, NothingLive) {
  REQUIRE_DEVICE();
  DecodeSpec spec = make_spec(4, 2, 128, {});
  spec.spare_sequences = 3;
  spec.spare_tokens = 5;
  check_all(spec);
}

TEST(Decode, ManySequences) {
  REQUIRE_DEVICE();
  DecodeSpec spec = make_spec(2, 1, 64, {});
  std::mt19937 rng(8);
  for (int s = 0; s < 700; ++s) {
    const int q_len = static_cast<int>(rng() % 3);
    spec.live.push_back({q_len, q_len + static_cast<int>(rng() % 40)});
  }
  spec.spare_sequences = kMaxDecodeSequences - 700;
  check_all(spec);
}

// Random shapes of everything.
TEST(Decode, Random) {
  REQUIRE_DEVICE();
  std::mt19937 rng(20);
  for (int round = 0; round < 60; ++round) {
    DecodeSpec spec;
    spec.attrs.head_dim = kHeadDims[rng() % 4];
    spec.attrs.group = 1 + rng() % 9;
    spec.attrs.head_offset = rng() % 3 == 0 ? rng() % spec.attrs.group : 0;
    spec.q_heads = 1 + static_cast<int>(rng() % 12);
    spec.kv_heads =
        static_cast<int>((spec.q_heads - 1 + spec.attrs.head_offset) / spec.attrs.group) + 1 +
        static_cast<int>(rng() % 2);
    spec.attrs.scale = .1f;
    spec.attrs.window = rng() % 3 == 0 ? 1 + rng() % 200 : 0;
    spec.attrs.softcap = rng() % 4 == 0 ? 5.f : 0.f;
    spec.cache_dtype = rng() % 4 == 0 ? DType::f16 : DType::bf16;
    spec.page_size = 16 + static_cast<int>(rng() % 241);
    for (int s = 0; s < static_cast<int>(rng() % 10); ++s) {
      const int q_len = rng() % 4 == 0 ? static_cast<int>(rng() % 9) : 1;
      spec.live.push_back({q_len, q_len + static_cast<int>(rng() % (rng() % 4 == 0 ? 600 : 90))});
    }
    spec.spare_sequences = static_cast<int>(rng() % 3) + spec.live.empty();
    spec.spare_tokens = static_cast<int>(rng() % 3);
    spec.seed = 1000 + static_cast<uint64_t>(round);
    check_all(spec);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// A wrong scale, or one key too many in the window, does not pass for rounding.
TEST(Decode, CheckTellsApart) {
  REQUIRE_DEVICE();
  DecodeSpec spec = make_spec(4, 2, 128, {{1, 100}});
  spec.attrs.window = 60;
  DecodeCase c(spec);
  c.run(choose(c.desc(), decode_device()));
  EXPECT_EQ(c.check(), "");
  ops::AttentionAttrs other = spec.attrs;
  other.window = 61;
  c.set_reference(other);
  EXPECT_NE(c.check(), "");
  other = spec.attrs;
  other.scale *= 1.03f;
  c.set_reference(other);
  EXPECT_NE(c.check(), "");
}

// In a captured chain of dependent launches the new keys and q come from the kernel before, which
// takes its time; the history is there from the start.
TEST(Decode, WaitsForTheKernelBefore) {
  REQUIRE_DEVICE();
  for (auto [q_len, context] : {std::pair{1, 40}, {1, 1000}, {4, 333}}) {
    DecodeSpec spec = make_spec(8, 8, 128, {{q_len, context}, {1, 64}, {1, 1}});
    DecodeCase c(spec);
    const DecodeConfig config = choose(c.desc(), decode_device());
    c.run(config);
    ASSERT_EQ(c.check(), "");
    const std::vector<std::byte> expected = c.output();

    LateWriter writer(c.q(), c.k(), c.v(), c.new_slots(),
                      bytes_of(spec.cache_dtype, spec.kv_heads * spec.attrs.head_dim));
    cudaStream_t stream;
    check_cuda(cudaStreamCreate(&stream), "stream");
    for (bool history_ready : {false, true}) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
      DecodeParams p = c.params(config);
      p.history_ready = history_ready;
      writer.poison(stream);
      // The poison is written by one kernel, the rows by the next: both before the attention.
      writer.write({stream, true});
      decode_attention(c.desc(), p, config, {stream, true});
      decode_attention(c.desc(), p, config, {stream, true});
      check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
      check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
      for (int round = 0; round < 20; ++round) {
        c.poison_output();
        check_cuda(cudaGraphLaunch(exec, stream), "launch");
        check_cuda(cudaStreamSynchronize(stream), "decode attention");
        ASSERT_TRUE(c.output() == expected)
            << "history_ready " << history_ready << " round " << round << ": " << c.check();
      }
      check_cuda(cudaGraphExecDestroy(exec), "graph");
      check_cuda(cudaGraphDestroy(graph), "graph");
    }
    check_cuda(cudaStreamDestroy(stream), "stream");
  }
}

TEST(Decode, Refusals) {
  REQUIRE_DEVICE();
  DecodeCase c(make_spec(4, 2, 64, {{1, 10}}));
  const DecodeConfig config = choose(c.desc(), decode_device());
  DecodeParams p = c.params(config);
  p.workspace = nullptr;
  EXPECT_THROW(decode_attention(c.desc(), p, config, {}), Error);
  p = c.params(config);
  p.q_stride = 17;
  EXPECT_THROW(decode_attention(c.desc(), p, config, {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
