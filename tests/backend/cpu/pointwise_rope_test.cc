#include <algorithm>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/pointwise/norm.h"
#include "braid/kernels/cpu/pointwise/rope.h"
#include "braid/kernels/cpu/pointwise/rows.h"

namespace braid::cpu {
namespace {

using namespace testing;
using ops::RopePairing;

const std::vector<int32_t> kPositions{0, 1, 2, 77, 4095, 131071, 999999, 1048575};

std::vector<double> frequencies(int64_t rot, double theta) {
  std::vector<double> f;
  for (int64_t i = 0; i < rot / 2; ++i) {
    f.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot)));
  }
  return f;
}

// One head in f64, in place.
void turn(std::vector<double>& x, const std::vector<double>& freq, double position, double mscale,
          RopePairing pairing) {
  const size_t half = freq.size();
  for (size_t i = 0; i < half; ++i) {
    double& a = x[pairing == RopePairing::half ? i : 2 * i];
    double& b = x[pairing == RopePairing::half ? i + half : 2 * i + 1];
    const double c = std::cos(position * freq[i]) * mscale;
    const double s = std::sin(position * freq[i]) * mscale;
    const double turned = a * c - b * s;
    b = a * s + b * c;
    a = turned;
  }
}

struct Case {
  int64_t head_dim, rot, heads;
};
const Case kCases[] = {{64, 64, 9},  {64, 64, 1},   {80, 80, 3},  {96, 24, 2}, {128, 128, 4},
                       {128, 64, 2}, {256, 256, 1}, {256, 64, 3}, {8, 2, 5},   {40, 18, 2},
                       {72, 72, 2},  {64, 0, 2},    {512, 512, 1}};

TEST(Rope, MatchesF64AtAnyPosition) {
  std::mt19937 random(30);
  const auto T = static_cast<int64_t>(kPositions.size());
  for (RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message()
                   << (pairing == RopePairing::half ? "half" : "interleaved") << " D " << c.head_dim
                   << " rot " << c.rot << " heads " << c.heads);
      const int64_t width = c.heads * c.head_dim;
      const int64_t stride = width + 3;
      const std::vector<double> freq = frequencies(c.rot, 10000);
      const std::vector<float> x = random_floats(random, T * stride);
      const float mscale = 1.25f;
      std::vector<float> y;
      const auto run = [&](const float* in, const Team& team, Isa isa) {
        rope({.rope = {kPositions.data(), freq.data(), mscale, pairing, c.head_dim, c.rot},
              .in = {.x = in, .x_stride = stride, .heads = c.heads},
              .out = y.data(),
              .out_stride = stride,
              .tokens = T},
             team, isa);
      };
      const auto check = [&] {
        Worst worst;
        for (int64_t t = 0; t < T; ++t) {
          for (int64_t h = 0; h < c.heads; ++h) {
            const int64_t at = t * stride + h * c.head_dim;
            std::vector<double> want(x.begin() + at, x.begin() + at + c.head_dim);
            turn(want, freq, kPositions[t], mscale, pairing);
            for (int64_t d = 0; d < c.head_dim; ++d) {
              // cos and sin to 2e-7, and two products and a sum of values below 6.
              const double tolerance = d < c.rot ? 6 * mscale * 4e-7 : 1e-30;
              worst.see(at + d, y[at + d], want[d], tolerance);
            }
          }
        }
        expect_close(worst);
      };
      sweep_teams([&] { y = poisoned(T * stride); },
                  [&](const Team& team, Isa isa) { run(x.data(), team, isa); }, check);
      sweep_teams([&] { y = x; },  // in place
                  [&](const Team& team, Isa isa) { run(y.data(), team, isa); }, check);
    }
  }
}

// The fused pass gives what its parts give, bit for bit.
TEST(RopeAppend, EqualsItsParts) {
  std::mt19937 random(31);
  const auto T = static_cast<int64_t>(kPositions.size());
  const std::vector<int32_t> slots{9, 8, -1, 0, 31, 5, 6, 7};
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (bool norm : {false, true}) {
      for (const Case& c : kCases) {
        SCOPED_TRACE(::testing::Message() << name(dtype) << " D " << c.head_dim << " rot " << c.rot
                                          << (norm ? " with norm" : ""));
        const int64_t D = c.head_dim;
        const int64_t q_heads = 2 * c.heads + 1;
        const int64_t stride = (q_heads + 2 * c.heads) * D;  // q, k and v side by side
        const std::vector<double> freq = frequencies(c.rot, 500000);
        const std::vector<float> qkv = random_floats(random, T * stride);
        const std::vector<float> q_norm = random_floats(random, D);
        const std::vector<float> k_norm = random_floats(random, D);
        const RopeSpec spec{kPositions.data(), freq.data(), 1.0f, RopePairing::half, D, c.rot};
        const float* k = qkv.data() + q_heads * D;
        const float* v = k + c.heads * D;
        const int64_t cache_bytes = bytes_of(dtype, 32 * c.heads * D);

        std::vector<float> q_out;
        std::vector<std::byte> cache_k, cache_v;
        for (Isa isa : usable_isas()) {
          // The parts.
          std::vector<float> parts = qkv;
          const auto part = [&](int64_t first, int64_t heads, const std::vector<float>& w) {
            float* x = parts.data() + first * D;
            if (norm) {
              rms_norm({x, w.data(), x, T, heads * D, D, stride, stride, 1e-6f}, Team{}, isa);
            }
            rope({.rope = spec,
                  .in = {.x = x, .x_stride = stride, .heads = heads},
                  .out = x,
                  .out_stride = stride,
                  .tokens = T},
                 Team{}, isa);
          };
          part(0, q_heads, q_norm);
          part(q_heads, c.heads, k_norm);
          std::vector<std::byte> want_k(cache_bytes, std::byte{0x11}), want_v = want_k;
          kv_append({parts.data() + q_heads * D,
                     v,
                     slots.data(),
                     {want_k.data(), want_v.data(), dtype, 4, c.heads, D},
                     T,
                     stride,
                     stride},
                    Team{}, isa);

          for (int threads : {1, 2, 3, 4}) {
            q_out = poisoned(T * q_heads * D);
            cache_k.assign(cache_bytes, std::byte{0x11});
            cache_v = cache_k;
            RopeAppendParams p;
            p.rope = spec;
            p.q = {qkv.data(), stride, norm ? q_norm.data() : nullptr, 1e-6f, q_heads};
            p.q_out = q_out.data();
            p.q_out_stride = q_heads * D;
            p.k = {k, stride, norm ? k_norm.data() : nullptr, 1e-6f, c.heads};
            p.v = v;
            p.v_stride = stride;
            p.slots = slots.data();
            p.cache = {cache_k.data(), cache_v.data(), dtype, 4, c.heads, D};
            p.tokens = T;
            for (int i = 0; i < threads; ++i) rope_append(p, Team{i, threads, nullptr}, isa);
            ASSERT_TRUE(cache_k == want_k) << name(isa) << threads;
            ASSERT_TRUE(cache_v == want_v) << name(isa) << threads;
            for (int64_t t = 0; t < T; ++t) {
              ASSERT_EQ(std::memcmp(&q_out[t * q_heads * D], &parts[t * stride],
                                    q_heads * D * sizeof(float)),
                        0)
                  << name(isa) << threads << " token " << t;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu
