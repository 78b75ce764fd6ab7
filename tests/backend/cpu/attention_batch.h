#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/attention/attention.h"

// Batches of attention() against f64.
namespace braid::cpu::testing {

struct Sequence {
  int64_t queries;
  int64_t kv_len;
};

struct Shape {
  int64_t head_dim = 64;
  int64_t q_heads = 9;
  int64_t kv_heads = 3;
  int64_t group = 3;
  int64_t head_offset = 0;
  int64_t page_size = 16;
  DType dtype = DType::f16;
  int64_t window = 0;
  float softcap = 0;
  float scale = 0;  // 0: 1 / sqrt(D)
  std::optional<ops::DualChunks> dual = {};
  std::vector<Sequence> sequences;
};

// A head after RoPE by `by` positions more, in f64.
inline std::vector<double> turned(const float* x, int64_t head_dim, const ops::RopeAttrs& rope,
                                  int64_t by) {
  std::vector<double> y(x, x + head_dim);
  const int64_t pairs = rope.rotary_dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(by) *
                         std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(pairs));
    const bool half = rope.pairing == ops::RopePairing::half;
    double &a = y[half ? i : 2 * i], &b = y[half ? i + pairs : 2 * i + 1];
    const double a0 = a;
    a = a0 * std::cos(angle) - b * std::sin(angle);
    b = a0 * std::sin(angle) + b * std::cos(angle);
  }
  return y;
}

// As published: keys stand at their places in chunks, and queries turn by the chunk's distance.
inline int64_t published_position(const ops::DualChunks& dual, int64_t position, int64_t key) {
  const int64_t place = position % dual.chunk, apart = position / dual.chunk - key / dual.chunk;
  return apart == 0 ? place : apart == 1 ? std::min(place + dual.chunk, dual.reach) : dual.reach;
}

// A batch over a cache in which only what may be read holds numbers: every other element is NaN,
// and page table entries that must not be followed point far outside.
class Batch {
 public:
  Batch(const Shape& shape, uint32_t seed) : shape_(shape), random_(seed) {
    int64_t tokens = 0;
    int64_t pages = 0;
    q_start_.push_back(0);
    for (const Sequence& s : shape.sequences) {
      tokens += s.queries;
      q_start_.push_back(static_cast<int32_t>(tokens));
      kv_len_.push_back(static_cast<int32_t>(s.kv_len));
      pages += ceil_div(s.kv_len, shape.page_size) + 1;
      max_pages_ = std::max(max_pages_, ceil_div(s.kv_len, shape.page_size) + 1);
    }
    q_stride_ = shape.q_heads * shape.head_dim + 8;
    q_ = random_floats(random_, tokens * q_stride_);
    if (shape.dual) frequencies_ = ops::rope_frequencies(shape.dual->rope, nullptr);
    fill_cache(pages);
  }

  AttentionParams params(float* out) {
    AttentionParams p;
    p.q = q_.data();
    p.out = out;
    p.page_table = page_table_.data();
    p.q_start = q_start_.data();
    p.kv_len = kv_len_.data();
    p.cache = {k_.data(),        v_.data(),       shape_.dtype,
               shape_.page_size, shape_.kv_heads, shape_.head_dim};
    p.sequences = static_cast<int64_t>(shape_.sequences.size());
    p.max_pages = max_pages_;
    p.q_heads = shape_.q_heads;
    p.group = shape_.group;
    p.head_offset = shape_.head_offset;
    p.q_stride = q_stride_;
    p.out_stride = out_stride();
    p.scale = scale();
    p.softcap = shape_.softcap;
    p.window = shape_.window;
    p.dual = shape_.dual ? &*shape_.dual : nullptr;
    p.frequencies = frequencies_.data();
    return p;
  }

  int64_t out_stride() const { return shape_.q_heads * shape_.head_dim; }
  int64_t tokens() const { return q_start_.back(); }
  float scale() const {
    return shape_.scale != 0 ? shape_.scale : 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  }

  double scale(int64_t position) const {
    if (!shape_.dual || shape_.dual->original == 0) return scale();
    const double longer = static_cast<double>(position + 1) / shape_.dual->original;
    return scale() * std::pow(std::max(1.0, 0.1 * std::log(longer) + 1), 2);
  }

  std::vector<float> run(Isa isa, int threads) {
    std::vector<float> out = poisoned(tokens() * out_stride());
    run(isa, threads, params(out.data()));
    return out;
  }

  void run(Isa isa, int threads, AttentionParams p) {
    const int64_t bytes = attention_scratch_bytes(p.q_heads, p.group, shape_.head_dim, threads);
    constexpr int64_t kGuard = 64;
    std::vector<std::byte> memory(bytes + 64 + kGuard, std::byte{0xff});  // NaN
    p.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    on_team(threads, [&](const Team& team) { attention(p, team, isa); });
    for (int64_t i = 0; i < kGuard; ++i) ASSERT_EQ(p.scratch[bytes + i], std::byte{0xff});
  }

  // Against f64, within what a chain of roundings can add up to.
  void expect_matches(const std::vector<float>& out) {
    if (want_.empty()) compute_reference();
    Worst worst;
    for (size_t i = 0; i < out.size(); ++i) {
      worst.see(static_cast<int64_t>(i), out[i], want_[i], tolerance_[i]);
    }
    expect_close(worst);
  }

  // The batch of sequence s alone, on the same cache.
  AttentionParams only(int64_t s, float* out) {
    AttentionParams p = params(out);
    alone_ = {0, q_start_[s + 1] - q_start_[s]};
    p.q += q_start_[s] * q_stride_;
    p.page_table += s * max_pages_;
    p.q_start = alone_.data();
    p.kv_len += s;
    p.sequences = 1;
    return p;
  }
  Range rows_of(int64_t s) const { return {q_start_[s], q_start_[s + 1]}; }

 private:
  int64_t first_visible(const Sequence& s) const {
    return shape_.window > 0 ? std::max<int64_t>(0, s.kv_len - s.queries - shape_.window + 1) : 0;
  }

  void fill_cache(int64_t pages) {
    const int64_t D = shape_.head_dim;
    std::vector<int32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const int64_t elems = pages * shape_.page_size * shape_.kv_heads * D;
    std::vector<float> k = poisoned(elems);
    std::vector<float> v = poisoned(elems);
    page_table_.assign(shape_.sequences.size() * max_pages_, 1 << 30);
    size_t next = 0;
    for (size_t s = 0; s < shape_.sequences.size(); ++s) {
      const Sequence& sequence = shape_.sequences[s];
      if (sequence.queries == 0) continue;
      for (int64_t pos = first_visible(sequence); pos < sequence.kv_len; ++pos) {
        int32_t& page = page_table_[s * max_pages_ + pos / shape_.page_size];
        if (page == 1 << 30) page = order[next++];
        const int64_t row = page * shape_.page_size + pos % shape_.page_size;
        for (std::vector<float>* x : {&k, &v}) {
          const std::vector<float> values = random_floats(random_, shape_.kv_heads * D);
          std::copy(values.begin(), values.end(), x->begin() + row * shape_.kv_heads * D);
        }
      }
    }
    k_.resize(bytes_of(shape_.dtype, elems));
    v_.resize(k_.size());
    quantize_row(shape_.dtype, k.data(), k_.data(), elems);
    quantize_row(shape_.dtype, v.data(), v_.data(), elems);
    k_values_.resize(elems);
    v_values_.resize(elems);
    dequantize_row(shape_.dtype, k_.data(), k_values_.data(), elems);
    dequantize_row(shape_.dtype, v_.data(), v_values_.data(), elems);
  }

  void compute_reference() {
    want_.resize(tokens() * out_stride());
    tolerance_.resize(want_.size());
    for (size_t s = 0; s < shape_.sequences.size(); ++s) {
      for (int64_t i = 0; i < shape_.sequences[s].queries; ++i) {
        for (int64_t h = 0; h < shape_.q_heads; ++h) compute_head(s, i, h);
      }
    }
  }

  void compute_head(size_t s, int64_t i, int64_t h) {
    const int64_t D = shape_.head_dim;
    const Sequence& sequence = shape_.sequences[s];
    const int64_t position = sequence.kv_len - sequence.queries + i;
    const int64_t begin =
        shape_.window > 0 ? std::max<int64_t>(0, position - shape_.window + 1) : 0;
    const int64_t kv_head = (h + shape_.head_offset) / shape_.group;
    const float* q = &q_[(q_start_[s] + i) * q_stride_ + h * D];
    const auto row = [&](int64_t pos) {
      const int64_t page = page_table_[s * max_pages_ + pos / shape_.page_size];
      return ((page * shape_.page_size + pos % shape_.page_size) * shape_.kv_heads + kv_head) * D;
    };

    std::vector<double> score;
    double score_error = 0;
    for (int64_t pos = begin; pos <= position; ++pos) {
      const float* k = &k_values_[row(pos)];
      double dot = 0, magnitude = 0;
      std::vector<double> met_q(q, q + D), met_k(k, k + D);
      if (shape_.dual) {
        const ops::DualChunks& dual = *shape_.dual;
        met_q = turned(q, D, dual.rope, published_position(dual, position, pos) - position);
        met_k = turned(k, D, dual.rope, pos % dual.chunk - pos);
      }
      for (int64_t d = 0; d < D; ++d) {
        const double x = met_q[d] * met_k[d];
        dot += x;
        magnitude += std::abs(x);
      }
      double error = (static_cast<double>(D) + 4) * kEps * magnitude * scale(position);
      double x = dot * scale(position);
      if (shape_.softcap > 0) {
        x = shape_.softcap * std::tanh(x / shape_.softcap);
        error += 3e-7 * shape_.softcap;
      }
      score.push_back(x);
      score_error = std::max(score_error, error + 2 * kEps * std::abs(x));
    }
    const double top = *std::max_element(score.begin(), score.end());
    double total = 0;
    for (double& x : score) total += x = std::exp(x - top);
    std::vector<double> sum(D), magnitude(D);
    for (int64_t pos = begin; pos <= position; ++pos) {
      const float* v = &v_values_[row(pos)];
      for (int64_t d = 0; d < D; ++d) {
        const double x = score[pos - begin] * v[d];
        sum[d] += x;
        magnitude[d] += std::abs(x);
      }
    }
    const double relative = 2 * score_error + (static_cast<double>(score.size()) + 16) * kEps;
    for (int64_t d = 0; d < D; ++d) {
      const int64_t index = (q_start_[s] + i) * out_stride() + h * D + d;
      want_[index] = sum[d] / total;
      tolerance_[index] = magnitude[d] / total * relative + 1e-9;
    }
  }

  Shape shape_;
  std::mt19937 random_;
  int64_t max_pages_ = 0;
  int64_t q_stride_ = 0;
  std::vector<float> q_;                    // [T, q_stride]
  std::vector<std::byte> k_, v_;            // [NB, BS, Hkv, D] of dtype
  std::vector<float> k_values_, v_values_;  // the same after rounding to dtype
  std::vector<double> want_, tolerance_;    // [T, Hq * D]
  std::vector<int32_t> page_table_;         // [S, P]
  std::vector<int32_t> q_start_, kv_len_;
  std::vector<int32_t> alone_;
  std::vector<double> frequencies_;
};

// Each Isa and team size: against f64, the same bits again and on every team.
inline void check(const Shape& shape, uint32_t seed) {
  SCOPED_TRACE(::testing::Message()
               << "seed " << seed << " D " << shape.head_dim << " heads " << shape.q_heads << "/"
               << shape.kv_heads << " group " << shape.group << " offset " << shape.head_offset
               << " page " << shape.page_size << " " << name(shape.dtype) << " window "
               << shape.window << " softcap " << shape.softcap);
  Batch batch(shape, seed);
  for (Isa isa : usable_isas()) {
    SCOPED_TRACE(name(isa));
    const std::vector<float> out = batch.run(isa, 1);
    batch.expect_matches(out);
    EXPECT_TRUE(same_bits(out, batch.run(isa, 1))) << "not repeatable";
    for (int threads : {2, 3, 4}) {
      EXPECT_TRUE(same_bits(out, batch.run(isa, threads))) << threads << " threads differ";
    }
    for (size_t s = 0; s < shape.sequences.size(); ++s) {
      std::vector<float> alone = poisoned(shape.sequences[s].queries * batch.out_stride());
      batch.run(isa, 2, batch.only(s, alone.data()));
      const Range rows = batch.rows_of(s);
      const std::vector<float> part(out.begin() + rows.begin * batch.out_stride(),
                                    out.begin() + rows.end * batch.out_stride());
      EXPECT_TRUE(same_bits(alone, part)) << "sequence " << s << " depends on its batch";
    }
  }
}

}  // namespace braid::cpu::testing
