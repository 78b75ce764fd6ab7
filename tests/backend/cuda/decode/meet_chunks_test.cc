// Queries as they meet chunks of keys, against ops::DualChunks.
#include "braid/kernels/cuda/dual_chunks/device/meet_chunks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/cuda/decode/decode_case.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/pointwise/rope_table.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

constexpr int64_t kHeads = 3, kD = 64;
constexpr int kFirst = 1, kChunks = 3;  // of the four chunks of the longest sequence
const std::vector<Lengths> kLive = {{1, 5}, {3, 21}, {2, 64}};
constexpr int kSpareSequences = 2, kSpareTokens = 2, kTokensBefore = 4;  // q_start counts them

struct Met {
  std::vector<float> q;  // [chunks, T, heads * D]
  std::vector<int32_t> lengths, rows, begin, end;
};

class MeetChunks : public testing::TestWithParam<std::tuple<DType, ops::RopePairing>> {
 protected:
  MeetChunks() {
    if (int n = 0; cudaGetDeviceCount(&n) != cudaSuccess || n == 0) return;
    std::mt19937 rng(6);
    std::normal_distribution<float> normal;
    for (const Lengths& s : kLive) {
      for (int i = 0; i < s.q_len; ++i) position_.push_back(s.kv_len - s.q_len + i);
      for (int i = 0; i < s.q_len; ++i) sequence_.push_back(static_cast<int>(q_start_.size()) - 1);
      q_start_.push_back(q_start_.back() + s.q_len);
      kv_len_.push_back(s.kv_len);
    }
    q_start_.resize(kLive.size() + kSpareSequences + 1, 1 << 20);
    kv_len_.resize(kLive.size() + kSpareSequences, 1 << 20);
    T_ = std::ssize(position_) + kSpareTokens;
    q_.resize(static_cast<size_t>(T_ * kHeads * kD));
    bytes_.resize(static_cast<size_t>(bytes_of(dtype(), std::ssize(q_))));
    for (float& x : q_) x = normal(rng);
    quantize_row(dtype(), q_.data(), bytes_.data(), std::ssize(q_));
    dequantize_row(dtype(), bytes_.data(), q_.data(), std::ssize(q_));
  }

  DType dtype() const { return std::get<0>(GetParam()); }
  ops::DualChunks dual() const {
    return {.chunk = 16,
            .reach = 24,
            .original = 20,
            .rope = {.head_dim = kD, .rotary_dim = 48, .pairing = std::get<1>(GetParam())}};
  }

  Met run() const {
    const DeviceBuffer<std::byte> q(bytes_);
    DeviceBuffer<std::byte> met(kChunks * bytes_.size());
    const DeviceBuffer<int32_t> q_start(q_start_), kv_len(kv_len_);
    const DeviceBuffer<int64_t> live(std::vector<int64_t>{std::ssize(kLive)});
    const DeviceBuffer<uint64_t> turns(rope_turns(dual().rope, nullptr));
    const size_t rows = static_cast<size_t>(kChunks * T_);
    DeviceBuffer<int32_t> lengths(kv_len_.size()), row(rows), begin(rows), end(rows);
    for (DeviceBuffer<int32_t>* ints : {&lengths, &row, &begin, &end}) ints->fill(0xff);
    met.fill(0xff);
    meet_chunks({.q = make_view(q.data(), dtype(), {T_, kHeads * kD}),
                 .met = met.data(),
                 .head_dim = kD,
                 .q_start = q_start.data(),
                 .kv_len = kv_len.data(),
                 .sequences = live.data(),
                 .max_sequences = static_cast<int>(kv_len_.size()),
                 .first_chunk = kFirst,
                 .chunks = kChunks,
                 .dual = dual_turns(dual(), turns.data()),
                 .lengths = lengths.data(),
                 .rows = row.data(),
                 .begin = begin.data(),
                 .end = end.data()},
                {});
    Met out = {std::vector<float>(kChunks * q_.size()), lengths.download(), row.download(),
               begin.download(), end.download()};
    dequantize_row(dtype(), met.download().data(), out.q.data(), std::ssize(out.q));
    return out;
  }

  int64_t T_ = 0;
  std::vector<float> q_;  // [T, heads * D], as rounded to the dtype
  std::vector<std::byte> bytes_;
  std::vector<int32_t> q_start_{kTokensBefore}, kv_len_, position_, sequence_;
};

TEST_P(MeetChunks, TurnsAndGrowsQueries) {
  if (T_ == 0) GTEST_SKIP() << "no CUDA device";
  const Met got = run();
  const auto frequencies = ops::rope_frequencies(dual().rope, nullptr);
  const float tolerance = dtype() == DType::bf16 ? 1e-2f : dtype() == DType::f16 ? 1e-3f : 1e-5f;
  for (int part = 0; part < kChunks; ++part) {
    for (int64_t t = 0; t < T_; ++t) {
      SCOPED_TRACE(fmt::format("chunk {}, token {}", kFirst + part, t));
      const float* row = got.q.data() + (part * T_ + t) * kHeads * kD;
      if (t >= std::ssize(position_)) {
        for (int64_t i = 0; i < kHeads * kD; ++i) ASSERT_TRUE(std::isnan(row[i])) << i;
        continue;
      }
      std::vector<float> want(q_.begin() + t * kHeads * kD, q_.begin() + (t + 1) * kHeads * kD);
      const int64_t by = dual().moves(position_[t], (kFirst + part) * dual().chunk);
      ops::turn_heads(dual().rope, frequencies, by, kHeads, kD, want.data());
      for (int64_t i = 0; i < kHeads * kD; ++i) {
        const double grown = want[i] * dual().growth(position_[t]);
        ASSERT_NEAR(row[i], grown, tolerance * std::max(1., std::abs(grown))) << i;
      }
    }
  }
}

TEST_P(MeetChunks, TellsTheKeysOfQueries) {
  if (T_ == 0) GTEST_SKIP() << "no CUDA device";
  const Met got = run();
  // Keys 16 to 31, as kFirst is 1; none in sequences that are not live.
  EXPECT_EQ(got.lengths, (std::vector<int32_t>{0, 5, 16, 0, 0}));
  for (int part = 0; part < kChunks; ++part) {
    for (int64_t t = 0; t < T_; ++t) {
      SCOPED_TRACE(fmt::format("chunk {}, token {}", kFirst + part, t));
      const int64_t row = part * T_ + t;
      std::vector<int64_t> seen;
      for (int64_t key = 0; t < std::ssize(position_) && key <= position_[t]; ++key) {
        if (key / dual().chunk == kFirst + part) seen.push_back(key);
      }
      ASSERT_EQ(got.end[row] - got.begin[row], std::ssize(seen));
      if (seen.empty()) continue;
      EXPECT_EQ(got.rows[row], sequence_[t]);
      EXPECT_EQ(got.begin[row], seen.front());
      EXPECT_EQ(got.end[row], seen.back() + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MeetChunks,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(ops::RopePairing::half,
                                                          ops::RopePairing::interleaved)));

TEST(MeetChunksOf, OtherTypesAreRefused) {
  std::byte none[1];
  const auto q = [&](DType dtype, int64_t columns) { return make_view(none, dtype, {1, columns}); };
  EXPECT_THROW(meet_chunks({.q = q(DType::i32, 64), .head_dim = 64}, {}), Error);
  EXPECT_THROW(meet_chunks({.q = q(DType::f32, 258), .head_dim = 258}, {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
