// Exchanges of clusters against sums on the host, bit by bit: every CTA has what the host says.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cuda/cluster/exchange_kernel.h"
#include "braid/base/math.h"

namespace braid::cuda::test {
namespace {

bool has_clusters() {
  int count = 0, major = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

#define REQUIRE_CLUSTERS() \
  if (!has_clusters()) GTEST_SKIP() << "no GPU with clusters"

constexpr ExchangeForm kForms[] = {ExchangeForm::direct, ExchangeForm::scatter, ExchangeForm::tree};
constexpr ExchangePath kPaths[] = {ExchangePath::chip, ExchangePath::memory};

float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Pairs of ranks, then pairs of these.
float pairwise(std::vector<float> v, bool max) {
  for (size_t stride = 1; stride < v.size(); stride *= 2) {
    for (size_t r = 0; r + stride < v.size(); r += 2 * stride) {
      v[r] = max ? std::fmax(v[r], v[r + stride]) : v[r] + v[r + stride];
    }
  }
  return v[0];
}

// Inputs, launch and what must come of it.
struct Case {
  ExchangeLaunch launch;
  std::vector<uint8_t> x;
  std::vector<uint8_t> expected;  // of all CTAs of all steps

  void add(ExchangeStep s, std::mt19937& rng) {
    const int ctas = launch.ctas, all = launch.ctas * launch.clusters;
    s.x = std::ssize(x);
    s.out = std::ssize(expected);
    const auto x_bytes = static_cast<size_t>(s.x_bytes());
    const auto out_bytes = static_cast<size_t>(s.out_bytes(ctas));
    x.resize(x.size() + x_bytes * static_cast<size_t>(all), 0xff);
    std::normal_distribution<float> normal;
    const auto value = [&](int cta, int i) {
      const uint8_t* from = x.data() + s.x + static_cast<size_t>(cta) * x_bytes;
      if (s.bf16) {
        uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        return bf16_value(bits);
      }
      float v;
      std::memcpy(&v, from + 4 * i, 4);
      return v;
    };
    for (int cta = 0; cta < all; ++cta) {
      uint8_t* to = x.data() + s.x + static_cast<size_t>(cta) * x_bytes;
      for (int i = 0; i < s.count; ++i) {
        const float v = normal(rng) * std::exp2(static_cast<float>(rng() % 16));
        const auto bits = std::bit_cast<uint32_t>(v);
        const auto high = static_cast<uint16_t>(bits >> 16);
        s.bf16 ? std::memcpy(to + 2 * i, &high, 2) : std::memcpy(to + 4 * i, &bits, 4);
      }
    }
    expected.resize(expected.size() + out_bytes * static_cast<size_t>(all), 0);
    for (int cta = 0; cta < all; ++cta) {
      uint8_t* to = expected.data() + s.out + static_cast<size_t>(cta) * out_bytes;
      const int first = cta / ctas * ctas;
      if (cta != first) {
        std::memcpy(to, to - out_bytes, out_bytes);
        continue;
      }
      if (s.kind == ExchangeKind::gather) {
        std::memcpy(to, x.data() + s.x + static_cast<size_t>(first) * x_bytes, out_bytes);
        continue;
      }
      for (int i = 0; i < s.count; ++i) {
        std::vector<float> v;
        for (int r = 0; r < ctas; ++r) v.push_back(value(first + r, i));
        const float sum = pairwise(v, s.max);
        std::memcpy(to + 4 * i, &sum, 4);
      }
    }
    launch.steps.push_back(s);
  }

  // Empty, or what differs first. Padding may hold anything.
  std::string check(const std::vector<uint8_t>& got) const {
    for (size_t n = 0; n < launch.steps.size(); ++n) {
      const ExchangeStep& s = launch.steps[n];
      const bool gather = s.kind == ExchangeKind::gather;
      const int64_t part = gather ? s.x_bytes() : s.out_bytes(1);
      const int64_t used = int64_t{s.count} * (gather && s.bf16 ? 2 : 4);
      const int64_t parts = int64_t{launch.ctas} * launch.clusters * (gather ? launch.ctas : 1);
      for (int64_t i = 0; i < parts; ++i) {
        const auto at = static_cast<size_t>(s.out + i * part);
        if (std::memcmp(got.data() + at, expected.data() + at, static_cast<size_t>(used)) == 0) {
          continue;
        }
        return fmt::format("exchange {} ({}, {}{}, {} elements): part {} of {} differs", n,
                           gather  ? "gather"
                           : s.max ? "max"
                                   : "sum",
                           to_string(s.form), s.bf16 ? ", bf16" : "", s.count, i, parts);
      }
    }
    return "";
  }
  std::vector<uint8_t> run() const { return run_exchanges(launch, x, std::ssize(expected)); }
};

Case make_case(int ctas, int clusters, int inbox_bytes, ExchangePath path, uint32_t seed) {
  Case c;
  c.launch.ctas = ctas;
  c.launch.clusters = clusters;
  c.launch.inbox_bytes = inbox_bytes;
  c.launch.path = path;
  c.launch.seed = seed;
  return c;
}

// Every size of cluster, form, path, op and dtype over counts around those where code branches.
TEST(Exchange, EqualsTheHost) {
  REQUIRE_CLUSTERS();
  for (const ExchangePath path : kPaths) {
    for (int ctas = 1; ctas <= kMaxCluster; ++ctas) {
      if (!runs_clusters(ctas)) continue;
      std::mt19937 rng(static_cast<unsigned>(ctas));
      Case c = make_case(ctas, 2, 24 << 10, path, static_cast<uint32_t>(ctas));
      for (const int count : {1, 3, 4, 5, 8, 17, 63, 64, 100, 129, 512, 1000, 2051}) {
        for (const ExchangeForm form : kForms) {
          for (const bool bf16 : {false, true}) {
            for (const bool max : {false, true}) {
              c.add({.form = form, .max = max, .bf16 = bf16, .count = count}, rng);
            }
            if (form == ExchangeForm::scatter) continue;
            const ExchangeStep gather{
                .kind = ExchangeKind::gather, .form = form, .bf16 = bf16, .count = count};
            if (gather.x_bytes() * ctas > c.launch.inbox_bytes) continue;
            c.add(gather, rng);
          }
        }
      }
      ASSERT_EQ(c.check(c.run()), "") << ctas << " CTAs, " << to_string(path);
    }
  }
}

// Exchanges of all kinds that follow each other at once, in CTAs that come late by turns.
TEST(Exchange, ManyInTurns) {
  REQUIRE_CLUSTERS();
  for (const ExchangePath path : kPaths) {
    for (const int ctas : {2, 3, 4, 6, 8, 12, 16}) {
      if (!runs_clusters(ctas)) continue;
      const auto seed = static_cast<uint32_t>(100 + ctas);
      std::mt19937 rng(seed);
      Case c = make_case(ctas, 3, 8 << 10, path, seed);
      for (int i = 0; i < 1000; ++i) {
        ExchangeStep s{.kind = rng() % 3 == 0 ? ExchangeKind::gather : ExchangeKind::reduce,
                       .form = kForms[rng() % 3],
                       .max = rng() % 2 == 0,
                       .bf16 = rng() % 2 == 0,
                       .count = 1 + static_cast<int32_t>(rng() % 120)};
        if (s.kind == ExchangeKind::gather && s.form == ExchangeForm::scatter) {
          s.form = ExchangeForm::tree;
        }
        c.add(s, rng);
      }
      const std::vector<uint8_t> once = c.run();
      ASSERT_EQ(c.check(once), "") << ctas << " CTAs, " << to_string(path) << ", seed " << seed;
      ASSERT_EQ(c.check(c.run()), "") << "second run, seed " << seed;
    }
  }
}

// Sums longer than an inbox go in pieces.
TEST(Exchange, Pieces) {
  REQUIRE_CLUSTERS();
  for (const ExchangePath path : kPaths) {
    for (const int ctas : {2, 5, 16}) {
      if (!runs_clusters(ctas)) continue;
      std::mt19937 rng(7);
      Case c = make_case(ctas, 2, 1024, path, 7);
      for (const ExchangeForm form : kForms) {
        for (const int count : {40, 333, 4096}) {
          c.add({.form = form, .count = count}, rng);
          c.add({.form = form, .bf16 = true, .count = count}, rng);
        }
      }
      ASSERT_EQ(c.check(c.run()), "") << ctas << " CTAs, " << to_string(path);
    }
  }
}

// No number in one place, infinities, zeros with a sign.
TEST(Exchange, NotFinite) {
  REQUIRE_CLUSTERS();
  std::mt19937 rng(9);
  for (const ExchangeForm form : kForms) {
    Case c = make_case(4, 1, 4096, ExchangePath::chip, 9);
    c.add({.form = form, .count = 8}, rng);
    c.add({.form = form, .max = true, .count = 8}, rng);
    auto* x = reinterpret_cast<float*>(c.x.data());
    x[0] = INFINITY;  // of the first CTA
    x[1] = -0.f;
    x[9] = x[17] = x[25] = -0.f;
    x[2] = NAN;
    auto* most = x + 32;
    most[3] = NAN;
    most[4] = most[12] = most[20] = most[28] = -INFINITY;
    const std::vector<uint8_t> got = c.run();
    const auto* sums = reinterpret_cast<const float*>(got.data());
    const auto* tops = sums + 32;
    for (int cta = 0; cta < 4; ++cta) {
      EXPECT_EQ(sums[8 * cta], INFINITY);
      EXPECT_TRUE(sums[8 * cta + 1] == 0 && std::signbit(sums[8 * cta + 1]));
      EXPECT_TRUE(std::isnan(sums[8 * cta + 2]));
      EXPECT_FALSE(std::isnan(tops[8 * cta + 3])) << "of a number and no number the number";
      EXPECT_EQ(tops[8 * cta + 4], -INFINITY);
    }
  }
}

// The comparison sees another order of the same sum, and a part that is not there.
TEST(Exchange, CheckTellsApart) {
  REQUIRE_CLUSTERS();
  std::mt19937 rng(3);
  Case c = make_case(8, 1, 16 << 10, ExchangePath::chip, 3);
  c.add({.count = 400}, rng);
  std::vector<uint8_t> got = c.run();
  ASSERT_EQ(c.check(got), "");
  const auto* x = reinterpret_cast<const float*>(c.x.data());
  auto* sums = reinterpret_cast<float*>(got.data());
  for (int i = 0; i < 400; ++i) {
    sums[i] = 0;
    for (int r = 0; r < 8; ++r) sums[i] += x[400 * r + i];
  }
  EXPECT_NE(c.check(got), "");
  got = c.run();
  got[got.size() - 1] ^= 1;
  EXPECT_NE(c.check(got), "");
}

}  // namespace
}  // namespace braid::cuda::test
