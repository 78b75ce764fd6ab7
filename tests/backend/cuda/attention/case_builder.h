#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/attention/attention_case.h"
#include "braid/base/math.h"
#include "braid/tensor/half.h"

// The tensors of a case, in its arena.
namespace braid::cuda::test {

constexpr uint8_t kPoison = 0xff;  // NaN in every float type

inline double load(DType dtype, const void* base, int64_t i) {
  if (dtype == DType::bf16) return to_float(static_cast<const bf16*>(base)[i]);
  if (dtype == DType::f16) return to_float(static_cast<const f16*>(base)[i]);
  return static_cast<const float*>(base)[i];
}

inline void store(DType dtype, void* base, int64_t i, float x) {
  if (dtype == DType::bf16) static_cast<bf16*>(base)[i] = to_bf16(x);
  if (dtype == DType::f16) static_cast<f16*>(base)[i] = to_f16(x);
}

inline int elem_bytes(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

// Lays the tensors out. Pointers are made once the arena has its size.
struct CaseBuilder {
  Case& c;
  std::mt19937_64 rng;
  std::normal_distribution<float> normal;

  size_t reserve(size_t bytes) {
    const size_t at = c.arena_.size();
    c.arena_.resize(round_up(at + bytes + 256, 256), kPoison);  // a gap of poison after each
    return at;
  }

  // Room for [b, t, h, d] with a gap after each token, and its strides.
  size_t tensor(int64_t b, int64_t t, int64_t h, int64_t d, int bytes, bool head_strided,
                Strides& s) {
    const int64_t pad = 8;
    if (head_strided) {
      s.token = d;
      s.head = t * d + pad;
      s.batch = h * s.head + pad;
    } else {
      s.head = d;
      s.token = h * d + pad;
      s.batch = t * s.token + pad;
    }
    return reserve(static_cast<size_t>(b * s.batch) * bytes);
  }

  void fill(size_t at, const Strides& s, int64_t b, int64_t t, int64_t h, int d, float gain) {
    for (int64_t i = 0; i < b; ++i)
      for (int64_t j = 0; j < t; ++j)
        for (int64_t k = 0; k < h; ++k)
          for (int x = 0; x < d; ++x) {
            store(c.spec_.desc.dtype, &c.arena_[at], i * s.batch + j * s.token + k * s.head + x,
                  gain * normal(rng));
          }
  }

  template <class T>
  T* at(size_t offset) {
    return reinterpret_cast<T*>(&c.arena_[offset]);
  }

  template <class T>
  T* place(size_t offset) {  // an offset for now; `bind` adds the base
    return reinterpret_cast<T*>(offset + 1);
  }

  void build() {
    const CaseSpec& spec = c.spec_;
    const AttentionDesc& d = spec.desc;
    rng.seed(spec.seed);
    const float gain = spec.inputs == Inputs::kLargeLogits ? 8.f : 1.f;
    for (size_t i = 0; i < spec.q_lengths.size(); ++i) {
      QTensor q;
      q.length = spec.q_lengths[i];
      q.offset = spec.q_offsets.empty() ? 0 : spec.q_offsets[i];
      if (!spec.q_stages.empty()) q.stage = spec.q_stages[i];
      if (!spec.q_early.empty()) q.early = spec.q_early[i];
      q.kv_begin = spec.sees.empty() ? 0 : spec.sees[i].first;
      q.kv_end = spec.sees.empty() ? static_cast<int>(spec.kv_lengths.size()) : spec.sees[i].second;
      int64_t outer = d.batch;
      int64_t rows = q.length;
      if (spec.ragged) {
        const size_t starts = reserve((d.batch + 1) * 4);
        at<int32_t>(starts)[0] = 0;
        for (int b = 0; b < d.batch; ++b) {
          const int n = b == 0 ? q.length : static_cast<int>(rng() % (q.length + 1));
          at<int32_t>(starts)[b + 1] = at<int32_t>(starts)[b] + n;
        }
        rows = q.rows = at<int32_t>(starts)[d.batch];
        outer = 1;
        q.starts = place<int32_t>(starts);
        const size_t offsets = reserve(d.batch * 4);
        for (int b = 0; b < d.batch; ++b) at<int32_t>(offsets)[b] = static_cast<int>(rng() % 40);
        q.offsets = place<int32_t>(offsets);
      }
      const size_t q_at =
          tensor(outer, rows, d.num_q_heads, d.head_dim_qk, 2, spec.head_strided, q.q_stride);
      fill(q_at, q.q_stride, outer, rows, d.num_q_heads, d.head_dim_qk, gain);
      q.q = place<void>(q_at);
      q.o = place<void>(
          tensor(outer, rows, d.num_q_heads, d.head_dim_v, 2, !spec.head_strided, q.o_stride));
      q.state_o = place<void>(tensor(outer, rows, d.num_q_heads, d.head_dim_v,
                                     elem_bytes(d.state_dtype), spec.head_strided, q.state_stride));
      const size_t stats = static_cast<size_t>(outer * d.num_q_heads * rows) * 4;
      q.row_stride = {d.num_q_heads * rows, 1, rows};
      q.lse = place<float>(reserve(stats));
      q.state_l = place<float>(reserve(stats));
      const size_t state_m = reserve(stats);
      if (spec.empty_state) std::fill_n(at<float>(state_m), stats / 4, -INFINITY);
      q.state_m = place<float>(state_m);
      c.q_.push_back(q);
    }
    int next = 0;
    for (size_t j = 0; j < spec.kv_lengths.size(); ++j) {
      KvTensor kv;
      kv.length = spec.kv_lengths[j];
      kv.offset = spec.kv_offsets.empty() ? next : spec.kv_offsets[j];
      next += kv.length;
      if (!spec.kv_stages.empty()) kv.stage = spec.kv_stages[j];
      std::vector<int> lengths(d.batch, kv.length);
      if (spec.device_lengths) {
        for (int b = 1; b < d.batch; ++b) lengths[b] = static_cast<int>(rng() % (kv.length + 1));
        const size_t at_lengths = reserve(d.batch * 4);
        std::memcpy(&c.arena_[at_lengths], lengths.data(), d.batch * 4);
        kv.lengths = place<int32_t>(at_lengths);
      }
      // Only keys that exist are filled: the rest of the capacity stays NaN.
      if (d.page_size == 0) {
        size_t k_at = tensor(d.batch, kv.length, d.num_kv_heads, d.head_dim_qk, 2,
                             spec.head_strided, kv.k_stride);
        size_t v_at = tensor(d.batch, kv.length, d.num_kv_heads, d.head_dim_v, 2, spec.head_strided,
                             kv.v_stride);
        for (int b = 0; b < d.batch; ++b) {
          fill(k_at + 2 * b * kv.k_stride.batch, kv.k_stride, 1, lengths[b], d.num_kv_heads,
               d.head_dim_qk, gain);
          fill(v_at + 2 * b * kv.v_stride.batch, kv.v_stride, 1, lengths[b], d.num_kv_heads,
               d.head_dim_v, 1.f);
        }
        kv.k = place<void>(k_at);
        kv.v = place<void>(v_at);
      } else {
        const int pages = static_cast<int>(ceil_div(kv.length, d.page_size));
        kv.page_table_stride = pages + 1;
        kv.num_pages = d.batch * pages + 3;
        std::vector<int> ids(kv.num_pages);
        for (int p = 0; p < kv.num_pages; ++p) ids[p] = p;
        std::shuffle(ids.begin(), ids.end(), rng);
        const size_t k_at = tensor(kv.num_pages, d.page_size, d.num_kv_heads, d.head_dim_qk, 2,
                                   spec.head_strided, kv.k_stride);
        const size_t v_at = tensor(kv.num_pages, d.page_size, d.num_kv_heads, d.head_dim_v, 2,
                                   spec.head_strided, kv.v_stride);
        const size_t table = reserve(d.batch * kv.page_table_stride * 4);
        for (int b = 0; b < d.batch; ++b) {
          for (int p = 0; p < pages; ++p) {
            const int id = ids[b * pages + p];
            at<int32_t>(table)[b * kv.page_table_stride + p] = id;
            const int n = std::clamp(lengths[b] - p * d.page_size, 0, d.page_size);
            fill(k_at + 2 * id * kv.k_stride.batch, kv.k_stride, 1, n, d.num_kv_heads,
                 d.head_dim_qk, gain);
            fill(v_at + 2 * id * kv.v_stride.batch, kv.v_stride, 1, n, d.num_kv_heads, d.head_dim_v,
                 1.f);
          }
        }
        kv.k = place<void>(k_at);
        kv.v = place<void>(v_at);
        kv.page_table = place<int32_t>(table);
      }
      c.kv_.push_back(kv);
    }
    if (spec.inputs == Inputs::kDominantKey) make_dominant();
  }

  // Key 3 of the first segment gets the direction of query 0, twenty times over.
  void make_dominant() {
    const AttentionDesc& d = c.spec_.desc;
    const QTensor& q = c.q_[0];
    const KvTensor& kv = c.kv_[0];
    if (d.page_size || kv.length <= 3 || q.length == 0) return;
    for (int h = 0; h < d.num_kv_heads; ++h) {
      for (int x = 0; x < d.head_dim_qk; ++x) {
        const int head = h * (d.num_q_heads / d.num_kv_heads);
        const double v =
            load(d.dtype, &c.arena_[reinterpret_cast<size_t>(q.q) - 1], head * q.q_stride.head + x);
        store(d.dtype, &c.arena_[reinterpret_cast<size_t>(kv.k) - 1],
              3 * kv.k_stride.token + h * kv.k_stride.head + x, static_cast<float>(20 * v));
      }
    }
  }

  template <class T>
  static void bind(T*& p, uint8_t* base) {
    if (p) p = reinterpret_cast<T*>(base + reinterpret_cast<size_t>(p) - 1);
  }

  static void bind(std::vector<QTensor>& qs, std::vector<KvTensor>& kvs, uint8_t* base) {
    for (QTensor& q : qs) {
      bind(q.q, base);
      bind(q.o, base);
      bind(q.lse, base);
      bind(q.state_o, base);
      bind(q.state_l, base);
      bind(q.state_m, base);
      bind(q.starts, base);
      bind(q.offsets, base);
    }
    for (KvTensor& kv : kvs) {
      bind(kv.k, base);
      bind(kv.v, base);
      bind(kv.lengths, base);
      bind(kv.page_table, base);
    }
  }
};

}  // namespace braid::cuda::test
