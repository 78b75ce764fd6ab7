// The cache of latents and attention over it, absorbed, against f64.
#include "braid/kernels/cuda/latent/device/latent.h"

#include <algorithm>
#include <numeric>

#include "backend/cuda/pointwise/tensor.h"
#include "braid/backend/cuda/device.h"
#include "braid/kernels/cuda/pointwise/rope_table.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  std::vector<int> queries, lengths;  // of each sequence
  int H = 16, Dn = 16, Dr = 64, R = 512, page = 16;
  DType cache = DType::bf16;
  bool interleaved = true;
  int nan_sequence = -1;
};

std::string describe(const Spec& s, uint32_t seed) {
  return fmt::format("{} sequences, H {} Dn {} Dr {} R {} page {} {} interleaved {} seed {}",
                     s.queries.size(), s.H, s.Dn, s.Dr, s.R, s.page, name(s.cache), s.interleaved,
                     seed);
}

float to_bf16_and_back(double x) {
  return to_float(to_bf16(static_cast<float>(x)));
}

void check(const Spec& s, uint32_t seed) {
  SCOPED_TRACE(describe(s, seed));
  std::mt19937 rng(seed);
  const auto sequences = std::ssize(s.queries);
  const int W = s.R + s.Dr, T = std::accumulate(s.queries.begin(), s.queries.end(), 0), spare = 3;
  const int stride = (*std::ranges::max_element(s.lengths) + s.page - 1) / s.page + 1;
  const int64_t pages = sequences * stride + 2;
  // Pages in an order of their own; keys that no sequence has are NaN.
  std::vector<int32_t> order(static_cast<size_t>(pages)),
      table(static_cast<size_t>(sequences * stride), 0);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  Tensor cache(s.cache, {pages, s.page, 1, W});
  std::normal_distribution<float> normal(0, 1);
  std::vector<int32_t> q_start = {0}, positions;
  for (int64_t i = 0; i < sequences; ++i) {
    const auto at = static_cast<size_t>(i);
    q_start.push_back(q_start.back() + s.queries[at]);
    for (int t = 0; t < s.queries[at]; ++t) positions.push_back(s.lengths[at] - s.queries[at] + t);
    for (int j = 0; j * s.page < s.lengths[at]; ++j) {
      table[static_cast<size_t>(i * stride + j)] = order[static_cast<size_t>(i * stride + j)];
    }
    for (int j = 0; j < s.lengths[at]; ++j) {
      std::vector<float> row(static_cast<size_t>(W));
      for (float& x : row) x = i == s.nan_sequence ? NAN : 0.5f * normal(rng);
      const int64_t slot =
          int64_t{table[static_cast<size_t>(i * stride + j / s.page)]} * s.page + j % s.page;
      quantize_row(s.cache, row.data(), cache.host().row(slot), W);
    }
  }
  cache.upload();
  const auto sequence_slot = [&](int64_t i, int j) {
    return int64_t{table[static_cast<size_t>(i * stride + j / s.page)]} * s.page + j % s.page;
  };
  positions.resize(static_cast<size_t>(T + spare), 0);
  Tensor q(DType::bf16, {T + spare, s.H * (s.Dn + s.Dr)}),
      absorbed(DType::bf16, {T + spare, s.H * s.R}), out(DType::bf16, {T + spare, s.H * s.R});
  q.normal(rng, 0.3f);
  absorbed.normal(rng, 0.3f);
  const ops::RopeAttrs rope = {.head_dim = s.Dr, .rotary_dim = s.Dr};
  const std::vector<uint64_t> turns = rope_turns(rope, nullptr);
  const std::vector<double> inv_freq = ops::rope_frequencies(rope, nullptr);
  const DeviceValue<uint64_t> device_turns(turns.data(), turns.size());
  const DeviceValue<int32_t> d_positions(positions.data(), positions.size()),
      d_start(q_start.data(), q_start.size()), d_length(s.lengths.data(), s.lengths.size()),
      d_table(table.data(), table.size());
  const DeviceValue<int64_t> live(sequences);
  const DeviceInfo info = device_info(0);
  const LatentDevice device = {info.num_sms, info.shared_memory_per_cta};
  const LatentShape shape = {
      .tokens = T + spare, .sequences = sequences + 1, .heads = s.H, .latent = s.R, .rope = s.Dr};
  const double scale = 1 / std::sqrt(double(s.Dn + s.Dr));

  std::vector<double> want(static_cast<size_t>(T * s.H * s.R)), size(want.size());
  for (int64_t i = 0; i < sequences; ++i) {
    const auto n = static_cast<size_t>(i);
    for (int t = 0; t < s.queries[n]; ++t) {
      const int64_t token = q_start[n] + t;
      const std::vector<float> own = q.row(token), to_latents = absorbed.row(token);
      for (int h = 0; h < s.H; ++h) {
        std::vector<float> full(to_latents.begin() + h * s.R, to_latents.begin() + (h + 1) * s.R);
        full.resize(static_cast<size_t>(W));
        for (int p = 0; p < s.Dr / 2; ++p) {
          const int a = s.interleaved ? 2 * p : p, b = s.interleaved ? 2 * p + 1 : p + s.Dr / 2;
          const double angle =
              positions[static_cast<size_t>(token)] * inv_freq[static_cast<size_t>(p)];
          const double x = own[static_cast<size_t>(h * (s.Dn + s.Dr) + s.Dn + a)];
          const double y = own[static_cast<size_t>(h * (s.Dn + s.Dr) + s.Dn + b)];
          full[static_cast<size_t>(s.R + a)] =
              to_bf16_and_back(x * std::cos(angle) - y * std::sin(angle));
          full[static_cast<size_t>(s.R + b)] =
              to_bf16_and_back(x * std::sin(angle) + y * std::cos(angle));
        }
        const int keys = s.lengths[n] - s.queries[n] + t + 1;
        std::vector<double> p(static_cast<size_t>(keys));
        std::vector<std::vector<float>> rows;
        double top = -INFINITY, total = 0;
        for (int j = 0; j < keys; ++j) {
          rows.push_back(cache.row(sequence_slot(i, j)));
          double dot = 0;
          // A cache of more digits is rounded on its way.
          for (int c = 0; c < W; ++c) {
            dot += double{full[static_cast<size_t>(c)]} *
                   to_bf16_and_back(rows.back()[static_cast<size_t>(c)]);
          }
          p[static_cast<size_t>(j)] = scale * dot;
          top = std::max(top, scale * dot);
        }
        for (double& x : p) total += x = std::exp(x - top);
        for (int j = 0; j < keys; ++j) {
          for (int c = 0; c < s.R; ++c) {
            const auto at = static_cast<size_t>((token * s.H + h) * s.R + c);
            const double x = p[static_cast<size_t>(j)] / total *
                             rows[static_cast<size_t>(j)][static_cast<size_t>(c)];
            want[at] += x;
            size[at] += std::abs(x);
          }
        }
      }
    }
  }
  std::vector<LatentConfig> configs = {choose_latent(shape, device)};
  for (const int rows : {16, 32, 64}) {
    if (latent_smem(rows, s.R, s.Dr).total > device.shared_bytes) continue;
    for (const int shares : {1, 3, 64}) configs.push_back({.rows = rows, .shares = shares});
  }
  prepare_latent_attention(device);
  for (const LatentConfig& config : configs) {
    SCOPED_TRACE(to_string(config));
    Tensor partial(DType::f32, {std::max<int64_t>(latent_workspace_bytes(shape, config) / 4, 1)});
    LatentParams p{.q = q.device().data,
                   .absorbed = absorbed.device().data,
                   .positions = d_positions.get(),
                   .cache = cache.device().data,
                   .q_start = d_start.get(),
                   .kv_len = d_length.get(),
                   .page_table = d_table.get(),
                   .turns = device_turns.get(),
                   .sequences = live.get(),
                   .out = out.device().data,
                   .partial = partial.device().as<float>(),
                   .cache_dtype = s.cache,
                   .heads = s.H,
                   .nope = s.Dn,
                   .rope = s.Dr,
                   .latent = s.R,
                   .page_size = s.page,
                   .table_stride = stride,
                   .tokens = T + spare,
                   .max_sequences = static_cast<int>(sequences + 1),
                   .scale = static_cast<float>(scale),
                   .interleaved = s.interleaved};
    std::vector<std::byte> first;
    for (int run = 0; run < 2; ++run) {
      out.poison();
      partial.poison();
      latent_attention(p, config, {});
      out.download();
      if (run == 0) first = out.bytes();
      ASSERT_TRUE(first == out.bytes()) << "two runs differ";
    }
    for (int64_t t = 0; t < T + spare; ++t) {
      const std::vector<float> got = out.row(t);
      const auto sequence =
          std::ranges::upper_bound(q_start, static_cast<int32_t>(t)) - q_start.begin() - 1;
      for (int c = 0; c < s.H * s.R; ++c) {
        const float g = got[static_cast<size_t>(c)];
        if (t >= T || sequence == s.nan_sequence) {
          ASSERT_TRUE(std::isnan(g)) << "token " << t << " column " << c;
          continue;
        }
        // Probabilities and results are rounded to bf16, scores come of sums in f32.
        const auto at = static_cast<size_t>(t * s.H * s.R + c);
        ASSERT_LE(std::abs(g - want[at]), 0x1.2p-7 * size[at] + 1e-5)
            << "token " << t << " head " << c / s.R << " column " << c % s.R << ": " << g
            << ", not " << want[at];
      }
    }
  }
}

TEST(LatentAttention, MatchesF64) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  const Spec cases[] = {
      {.queries = {1}, .lengths = {1}},
      {.queries = {1, 1, 1}, .lengths = {130, 1, 64}},
      {.queries = {1, 0, 7, 40}, .lengths = {65, 9, 7, 99}, .page = 32},
      {.queries = {1, 5}, .lengths = {70, 50}, .H = 20, .R = 256, .interleaved = false},
      {.queries = {3, 1}, .lengths = {3, 200}, .H = 3, .Dn = 24, .Dr = 16, .R = 24},
      {.queries = {9}, .lengths = {30}, .H = 5, .Dn = 24, .Dr = 8, .R = 40, .page = 8},
      {.queries = {2}, .lengths = {49}, .H = 128},
  };
  for (Spec s : cases) {
    check(s, ++seed);
    s.cache = s.H == 5 ? DType::f32 : DType::f16;
    if (s.H != 128) check(s, ++seed);
    if (HasFatalFailure()) return;
  }
  // More sequences than a warp looks at at a time.
  Spec many{.H = 2, .Dr = 8, .R = 32};
  for (int i = 0; i < 75; ++i) {
    many.queries.push_back(i % 3);
    many.lengths.push_back(i % 3 + i % 50);
  }
  check(many, ++seed);
}

TEST(LatentAttention, ABrokenSequenceSpoilsNoOther) {
  REQUIRE_DEVICE();
  check({.queries = {1, 1, 12}, .lengths = {70, 33, 90}, .nan_sequence = 1}, 5);
}

TEST(LatentAppend, MatchesTheReference) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const auto& [R, Dr, pairing] : {std::tuple{512, 64, ops::RopePairing::interleaved},
                                         {24, 16, ops::RopePairing::half},
                                         {1, 2, ops::RopePairing::interleaved}}) {
      std::mt19937 rng(++seed);
      SCOPED_TRACE(fmt::format("{} R {} Dr {} seed {}", name(dtype), R, Dr, seed));
      const int64_t T = 9, live = 7;
      Tensor kv(DType::bf16, {T, R + Dr}), norm(DType::f32, {R}), positions(DType::i32, {T}),
          slots(DType::i32, {T});
      Tensor got(dtype, {3, 8, 1, R + Dr}), want(DType::f32, {3, 8, 1, R + Dr}),
          wide(DType::f32, {T, R + Dr});
      kv.normal(rng);
      norm.normal(rng);
      for (int64_t t = 0; t < T; ++t) {
        const std::vector<float> row = kv.row(t);
        std::copy(row.begin(), row.end(), wide.host().row_as<float>(t));
      }
      positions.integers({0, 1, 77, 4095, 131071, 5, 6, 7, 8});
      slots.integers({3, 23, -1, 8, 0, 15, 16, 20, 21});
      const ops::LatentAppendAttrs attrs = {
          .rope = {.head_dim = Dr, .rotary_dim = Dr, .pairing = pairing}, .eps = 1e-6f};
      reference(ops::kLatentAppend, Attrs::of(attrs),
                {wide.host(), norm.host(), positions.host(), slots.host(), want.host()}, {}, live);
      const std::vector<uint64_t> turns = rope_turns(attrs.rope, nullptr);
      const DeviceValue<uint64_t> device_turns(turns.data(), turns.size());
      const DeviceValue<int64_t> rows(live);
      latent_append({.kv = kv.device(),
                     .norm = norm.device(),
                     .positions = positions.device().as<const int32_t>(),
                     .slots = slots.device().as<const int32_t>(),
                     .cache = got.device(),
                     .turns = device_turns.get(),
                     .attrs = attrs,
                     .rows = rows.get()},
                    {});
      got.download();
      for (int64_t slot = 0; slot < 24; ++slot) {
        const std::vector<float> g = got.row(slot), w = want.row(slot);
        for (size_t c = 0; c < g.size(); ++c) {
          ASSERT_EQ(std::isnan(g[c]), std::isnan(w[c])) << "slot " << slot << " column " << c;
          if (!std::isnan(g[c])) {
            ASSERT_LE(std::abs(g[c] - w[c]), rounding(dtype) * std::abs(w[c]) + 1e-4)
                << "slot " << slot << " column " << c;
          }
        }
      }
    }
  }
}

TEST(TransposeHeads, SwapsRowsAndColumns) {
  REQUIRE_DEVICE();
  std::mt19937 rng(3);
  const int H = 3, rows = 40, cols = 65;
  Tensor w(DType::bf16, {H, rows, cols}), out(DType::bf16, {H, cols, rows});
  w.normal(rng);
  transpose_heads(w.device().data, out.device().data, H, rows, cols, nullptr);
  out.download();
  for (int h = 0; h < H; ++h) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) {
        ASSERT_EQ(out.row(h * cols + c)[static_cast<size_t>(r)],
                  w.row(h * rows + r)[static_cast<size_t>(c)]);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
