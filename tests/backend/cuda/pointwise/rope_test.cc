#include "braid/kernels/cuda/pointwise/device/rope.h"

#include <algorithm>

#include "backend/cuda/pointwise/tensor.h"
#include "braid/base/error.h"
#include "braid/ops/attention.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  int64_t rows = 1, live = 1;
  int64_t q_heads = 4, kv_heads = 2;
  ops::RopeAttrs rope;
  bool q_norm = false, k_norm = false, factors = false;
  DType x = DType::bf16, y = DType::bf16, cache = DType::bf16;
  int32_t max_position = 1 << 20;
  int64_t skip = 0;  // elements by which operands are off 16-byte alignment
};

std::string describe(const Spec& s, uint32_t seed) {
  return fmt::format(
      "{} of {} tokens, {}q {}kv heads of {} ({} {}), norms {}{}, {} -> {}, cache {}, "
      "skip {}, {}, seed {}",
      s.live, s.rows, s.q_heads, s.kv_heads, s.rope.head_dim, s.rope.rotary_dim,
      to_string(s.rope.pairing), s.q_norm, s.k_norm, name(s.x), name(s.y), name(s.cache), s.skip,
      to_string(s.rope.scaling), seed);
}

// The kernel's arithmetic, relative to the largest of a head: the angle to 2^-25 of a half turn,
// sine and cosine to 2 ulp, three roundings, the norm's sum of at most 512 squares.
constexpr double kError = 0x1p-19;

void check(const Spec& s, uint32_t seed) {
  std::mt19937 rng(seed);
  const std::string what = describe(s, seed);
  SCOPED_TRACE(what);
  const int64_t D = s.rope.head_dim, BS = 16, NB = s.rows / BS + 3;
  // q, k and v side by side, as a fused projection leaves them.
  const int64_t cols = (s.q_heads + 2 * s.kv_heads) * D;
  Tensor qkv(s.x, {s.rows, cols}, 0, s.skip), y(s.y, {s.rows, s.q_heads * D}, 0, s.skip);
  Tensor positions(DType::i32, {s.rows}), slots(DType::i32, {s.rows});
  Tensor q_norm(DType::f32, {D}), k_norm(DType::bf16, {D});
  Tensor cache_k(s.cache, {NB, BS, s.kv_heads, D}), cache_v(s.cache, {NB, BS, s.kv_heads, D});
  qkv.normal(rng);
  q_norm.normal(rng);
  k_norm.normal(rng);
  std::vector<int32_t> at(static_cast<size_t>(s.rows)), slot(at.size());
  for (int32_t& p : at) p = static_cast<int32_t>(rng() % static_cast<uint32_t>(s.max_position));
  at[0] = s.max_position - 1;
  for (size_t t = 0; t < slot.size(); ++t)
    slot[t] = static_cast<int32_t>(NB * BS - 1 - static_cast<int64_t>(t));
  if (s.rows > 1) slot[1] = -1;
  positions.integers(at);
  slots.integers(slot);
  std::vector<float> factors(static_cast<size_t>(s.rope.rotary_dim / 2));
  for (float& f : factors) f = std::uniform_real_distribution<float>(0.5f, 4)(rng);
  const std::vector<uint64_t> turns = rope_turns(s.rope, s.factors ? factors.data() : nullptr);
  const DeviceValue<uint64_t> device_turns(turns.data(), turns.size());

  // The reference on f32 copies, so that only its result is rounded.
  const auto widened = [&](int64_t begin, int64_t end) {
    auto out = std::make_unique<Tensor>(DType::f32, Shape{s.rows, end - begin});
    for (int64_t t = 0; t < s.rows; ++t) {
      const std::vector<float> row = qkv.row(t);
      std::copy(row.begin() + begin, row.begin() + end, out->host().row_as<float>(t));
    }
    return out;
  };
  const int64_t k_begin = s.q_heads * D, v_begin = k_begin + s.kv_heads * D;
  const auto q = widened(0, k_begin), k = widened(k_begin, v_begin), v = widened(v_begin, cols);
  Tensor factor_view(DType::f32, {std::max<int64_t>(s.rope.rotary_dim / 2, 1)});
  std::memcpy(factor_view.host().data, factors.data(), factors.size() * 4);
  Tensor want_q(DType::f32, {s.rows, s.q_heads * D});
  Tensor want_k(DType::f32, {NB, BS, s.kv_heads, D}), want_v(DType::f32, {NB, BS, s.kv_heads, D});
  const TensorView none;
  const ops::RopeAppendAttrs attrs = {s.rope, 1e-6f};
  reference(ops::kRopeAppend, Attrs::of(attrs),
            {q->host(), k->host(), v->host(), positions.host(),
             s.factors ? factor_view.host() : none, slots.host(), want_k.host(), want_v.host(),
             s.q_norm ? q_norm.host() : none, s.k_norm ? k_norm.host() : none},
            {want_q.host()}, s.live);

  const DeviceValue<int64_t> live(s.live);
  RopeAppendParams params = {.q = slice_cols(qkv.device(), 0, k_begin),
                             .k = slice_cols(qkv.device(), k_begin, v_begin),
                             .v = slice_cols(qkv.device(), v_begin, cols),
                             .positions = positions.device(),
                             .slots = slots.device(),
                             .cache_k = cache_k.device(),
                             .cache_v = cache_v.device(),
                             .y = y.device(),
                             .turns = device_turns.get(),
                             .attrs = attrs,
                             .rows = live.get()};
  if (s.q_norm) params.q_norm = q_norm.device();
  if (s.k_norm) params.k_norm = k_norm.device();
  const RopeConfig config = choose_rope(rope_append_desc(params), kNumSms);
  const auto largest = [D](const TensorView& view, int64_t row, int64_t col) {
    const float* head = view.row_as<float>(row) + col / D * D;
    double out = 0;
    for (int64_t d = 0; d < D; ++d) out = std::max(out, std::abs(double{head[d]}));
    return out;
  };
  const auto tolerance = [&](const TensorView& want, DType dtype) {
    return [&, want, dtype](int64_t r, int64_t c) {
      return rounding(dtype) * std::abs(want.row_as<float>(r)[c]) + kError * largest(want, r, c) +
             (dtype == DType::f16 ? 0x1p-25 : 0);
    };
  };
  // Cache rows that no live token wrote must still be poison, in any order.
  const auto check_cache = [&](Tensor& cache, const TensorView& want, const char* name) {
    std::vector<bool> written(static_cast<size_t>(NB * BS));
    for (int64_t t = 0; t < s.live; ++t) {
      if (slot[static_cast<size_t>(t)] >= 0) written[static_cast<size_t>(slot[t])] = true;
    }
    const auto allowed = tolerance(want, s.cache);
    for (int64_t r = 0; r < NB * BS * s.kv_heads; ++r) {
      const std::vector<float> got = cache.row(r);
      const float* w = want.row_as<float>(r);
      for (int64_t d = 0; d < D; ++d) {
        const float g = got[static_cast<size_t>(d)];
        if (written[static_cast<size_t>(r / s.kv_heads)]) {
          ASSERT_LE(std::abs(double{g} - w[d]), allowed(r, d))
              << name << " row " << r << " column " << d << ": " << g << ", not " << w[d];
        } else {
          ASSERT_TRUE(std::isnan(g)) << name << " row " << r << " was written";
        }
      }
    }
  };
  std::vector<std::byte> first;
  // The choice for few tokens and, where there is one, that for many.
  RopeConfig other = config;
  if (config.vector == 8) other.heads_per_row = config.heads_per_row == 1 ? 4 : 1;
  for (int run = 0; run < 3; ++run) {
    y.poison();
    cache_k.poison();
    cache_v.poison();
    rope_append(params, run < 2 ? config : other, {.stream = nullptr, .pdl = run > 0});
    check_cuda(cudaDeviceSynchronize(), "rope_append");
    y.download();
    cache_k.download();
    cache_v.download();
    if (first.empty()) first = y.bytes();
    ASSERT_TRUE(run == 2 || first == y.bytes()) << "two runs differ";
    ASSERT_EQ(y.compare(want_q.host(), s.live, tolerance(want_q.host(), s.y)), "");
    check_cache(cache_k, want_k.host(), "cache k");
    check_cache(cache_v, want_v.host(), "cache v");
    if (::testing::Test::HasFatalFailure()) return;
  }

  // Without slots, token t has slot t: the sequences of rope_sequence.
  Tensor seq_k(s.cache, {1, s.rows, s.kv_heads, D}), seq_v(s.cache, {1, s.rows, s.kv_heads, D});
  RopeAppendParams sequence = params;
  sequence.slots = {};
  sequence.cache_k = seq_k.device();
  sequence.cache_v = seq_v.device();
  y.poison();
  seq_k.poison();
  seq_v.poison();
  rope_append(sequence, choose_rope(rope_append_desc(sequence), kNumSms), {});
  check_cuda(cudaDeviceSynchronize(), "rope_sequence");
  y.download();
  seq_k.download();
  seq_v.download();
  ASSERT_TRUE(first == y.bytes()) << "rope_sequence differs";
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      const int64_t at = t * s.kv_heads + h, cached = slot[static_cast<size_t>(t)] * s.kv_heads + h;
      if (t >= s.live) {
        ASSERT_TRUE(std::isnan(seq_k.row(at)[0]) && std::isnan(seq_v.row(at)[0]));
      } else if (cached >= 0) {
        ASSERT_EQ(seq_k.row(at), cache_k.row(cached)) << "row " << t;
        ASSERT_EQ(seq_v.row(at), cache_v.row(cached)) << "row " << t;
      }
    }
  }

  // The parts alone: rope of q, and kv_append of what is not turned.
  RopeAppendParams alone = params;
  alone.k = alone.v = alone.slots = alone.cache_k = alone.cache_v = {};
  y.poison();
  rope_append(alone, choose_rope(rope_append_desc(alone), kNumSms), {});
  check_cuda(cudaDeviceSynchronize(), "rope");
  y.download();
  ASSERT_TRUE(first == y.bytes()) << "rope alone differs";
  alone = params;
  alone.q = alone.y = alone.positions = alone.q_norm = alone.k_norm = {};
  alone.attrs.rope.rotary_dim = 0;
  alone.turns = nullptr;
  cache_k.poison();
  cache_v.poison();
  rope_append(alone, choose_rope(rope_append_desc(alone), kNumSms), {});
  check_cuda(cudaDeviceSynchronize(), "kv_append");
  cache_k.download();
  cache_v.download();
  want_k.poison();
  want_v.poison();
  reference(ops::kKvAppend, Attrs::of(ops::KvAppendAttrs{D}),
            {k->host(), v->host(), slots.host(), want_k.host(), want_v.host()}, {}, s.live);
  check_cache(cache_k, want_k.host(), "kv_append k");
  check_cache(cache_v, want_v.host(), "kv_append v");
}

ops::RopeAttrs rope_of(int64_t head_dim, int64_t rotary_dim,
                       ops::RopePairing pairing = ops::RopePairing::half) {
  ops::RopeAttrs a;
  a.head_dim = head_dim;
  a.rotary_dim = rotary_dim;
  a.pairing = pairing;
  a.theta = 500000;
  return a;
}

TEST(RopeAppend, HeadSizes) {
  REQUIRE_DEVICE();
  using enum ops::RopePairing;
  for (auto [dim, rotary] : {std::pair<int64_t, int64_t>{64, 64},
                             {128, 128},
                             {96, 96},
                             {80, 32},
                             {256, 64},
                             {80, 20},
                             {50, 50},
                             {512, 512},
                             {2, 2},
                             {128, 0}}) {
    for (auto pairing : {half, interleaved}) {
      for (auto [rows, live] : {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {80, 79}}) {
        for (bool norm : {false, true}) {
          check({.rows = rows,
                 .live = live,
                 .rope = rope_of(dim, rotary, pairing),
                 .q_norm = norm,
                 .k_norm = norm},
                static_cast<uint32_t>(dim * 100 + rotary + rows));
        }
      }
    }
  }
}

TEST(RopeAppend, TypesAndAlignment) {
  REQUIRE_DEVICE();
  for (auto [x, y] :
       {std::pair{DType::bf16, DType::bf16}, {DType::f32, DType::f32}, {DType::f32, DType::bf16}}) {
    for (DType cache : {DType::f32, DType::f16, DType::bf16}) {
      for (int64_t skip : {0, 3}) {
        for (bool norm : {false, true}) {
          check({.rows = 6,
                 .live = 6,
                 .q_heads = 9,
                 .kv_heads = 3,
                 .rope = rope_of(64, 64),
                 .q_norm = norm,
                 .x = x,
                 .y = y,
                 .cache = cache,
                 .skip = skip},
                static_cast<uint32_t>(skip + 17));
        }
      }
    }
  }
}

TEST(RopeAppend, ScalingsAndFactors) {
  REQUIRE_DEVICE();
  using enum ops::RopeScaling;
  for (auto scaling : {none, linear, llama3, yarn}) {
    for (bool factors : {false, true}) {
      ops::RopeAttrs a = rope_of(128, 128);
      a.scaling = scaling;
      a.factor = scaling == none ? 1 : 8;
      a.original_context = 8192;
      a.attention_factor = scaling == yarn ? 1.2079f : 1;
      check({.rows = 40,
             .live = 40,
             .q_heads = 32,
             .kv_heads = 8,
             .rope = a,
             .factors = factors,
             .x = DType::f32,
             .y = DType::f32,
             .cache = DType::f32},
            static_cast<uint32_t>(scaling));
    }
  }
}

TEST(RopeAppend, RefusesWhatDoesNotFit) {
  REQUIRE_DEVICE();
  Tensor q(DType::bf16, {2, 96}), y(DType::bf16, {2, 96}), positions(DType::i32, {2});
  const DeviceValue<uint64_t> turns(uint64_t{0});
  RopeAppendParams p = {
      .q = q.device(), .positions = positions.device(), .y = y.device(), .turns = turns.get()};
  p.attrs.rope = rope_of(64, 64);
  EXPECT_THROW(rope_append_desc(p), Error);  // 96 columns are no whole heads
  p.attrs.rope = rope_of(96, 96);
  EXPECT_NO_THROW(rope_append_desc(p));
  p.positions = {};
  EXPECT_THROW(rope_append_desc(p), Error);
  p.positions = positions.device();
  p.turns = nullptr;
  EXPECT_THROW(rope_append_desc(p), Error);
}

}  // namespace
}  // namespace braid::cuda::test
