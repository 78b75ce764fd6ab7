#include "backend/cuda/attention/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/tensor/half.h"

namespace braid::cuda::test {
namespace {

constexpr uint8_t kPoison = 0xff;  // NaN in every float type

double load(DType dtype, const void* base, int64_t i) {
  if (dtype == DType::bf16) return to_float(static_cast<const bf16*>(base)[i]);
  if (dtype == DType::f16) return to_float(static_cast<const f16*>(base)[i]);
  return static_cast<const float*>(base)[i];
}

void store(DType dtype, void* base, int64_t i, float x) {
  if (dtype == DType::bf16) static_cast<bf16*>(base)[i] = to_bf16(x);
  if (dtype == DType::f16) static_cast<f16*>(base)[i] = to_f16(x);
}

double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

int elem_bytes(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

}  // namespace

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
      QSegment q;
      q.length = spec.q_lengths[i];
      q.offset = spec.q_offsets.empty() ? 0 : spec.q_offsets[i];
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
      KvSegment kv;
      kv.length = spec.kv_lengths[j];
      kv.offset = spec.kv_offsets.empty() ? next : spec.kv_offsets[j];
      next += kv.length;
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
    const QSegment& q = c.q_[0];
    const KvSegment& kv = c.kv_[0];
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

  static void bind(std::vector<QSegment>& qs, std::vector<KvSegment>& kvs, uint8_t* base) {
    for (QSegment& q : qs) {
      bind(q.q, base);
      bind(q.o, base);
      bind(q.lse, base);
      bind(q.state_o, base);
      bind(q.state_l, base);
      bind(q.state_m, base);
      bind(q.starts, base);
      bind(q.offsets, base);
    }
    for (KvSegment& kv : kvs) {
      bind(kv.k, base);
      bind(kv.v, base);
      bind(kv.lengths, base);
      bind(kv.page_table, base);
    }
  }
};

Case::Case(const CaseSpec& spec) : spec_(spec) {
  CaseBuilder builder{*this, {}, {}};
  builder.build();
  check_cuda(cudaMalloc(&device_, arena_.size()), "test arena");
  check_cuda(cudaMalloc(&workspace_, kAttentionWorkspaceBytes), "test workspace");
  check_cuda(cudaMemset(workspace_, 0, kAttentionWorkspaceBytes), "test workspace");
  device_q_ = q_;
  device_kv_ = kv_;
  CaseBuilder::bind(device_q_, device_kv_, device_);
  CaseBuilder::bind(q_, kv_, arena_.data());
}

Case::~Case() {
  cudaFree(device_);
  cudaFree(workspace_);
}

void Case::launch(const AttentionDesc& desc, const AttentionParams& params,
                  const AttentionConfig& config, AttentionChain* chain) {
  attention(desc, params, config, workspace_, nullptr, 0, chain);
  if (chain == nullptr) check_cuda(cudaDeviceSynchronize(), "attention");
}

void Case::run(const AttentionConfig& config) {
  chain_ = 1;
  check_cuda(cudaMemcpy(device_, arena_.data(), arena_.size(), cudaMemcpyHostToDevice), "upload");
  launch(spec_.desc, device_params(), config);
  result_.resize(arena_.size());
  check_cuda(cudaMemcpy(result_.data(), device_, arena_.size(), cudaMemcpyDeviceToHost), "fetch");
}

int64_t Case::run_chain(const std::vector<AttentionConfig>& configs, int calls, bool linked) {
  chain_ = calls;
  AttentionChain chain;
  if (linked) {
    chain.slots = attention_chain_slots(spec_.desc, device_params());
    check_cuda(cudaMalloc(&chain.ready, chain.slots * sizeof(int32_t)), "chain");
    check_cuda(cudaMemset(chain.ready, 0, chain.slots * sizeof(int32_t)), "chain");
  }
  check_cuda(cudaMemcpy(device_, arena_.data(), arena_.size(), cudaMemcpyHostToDevice), "upload");
  const int n = static_cast<int>(kv_.size());
  for (int i = 0; i < calls; ++i) {
    AttentionDesc desc = spec_.desc;
    desc.load_state = i > 0;
    desc.finalize = i == calls - 1;
    std::vector<QSegment> q = device_q_;
    for (QSegment& s : q) {
      s.kv_begin = i * n / calls;
      s.kv_end = (i + 1) * n / calls;
    }
    launch(desc, {q, device_kv_}, configs[static_cast<size_t>(i) % configs.size()],
           linked ? &chain : nullptr);
  }
  check_cuda(cudaDeviceSynchronize(), "attention");
  int64_t left = 0;
  if (linked) {
    std::vector<int32_t> counts(chain.slots);
    check_cuda(cudaMemcpy(counts.data(), chain.ready, chain.slots * sizeof(int32_t),
                          cudaMemcpyDeviceToHost),
               "chain");
    check_cuda(cudaFree(chain.ready), "chain");
    left = std::count_if(counts.begin(), counts.end(), [](int32_t x) { return x != 0; });
  }
  result_.resize(arena_.size());
  check_cuda(cudaMemcpy(result_.data(), device_, arena_.size(), cudaMemcpyDeviceToHost), "fetch");
  return left;
}

template <class F>
void Case::for_each_row(F f) const {
  for (size_t i = 0; i < q_.size(); ++i) {
    for (int b = 0; b < spec_.desc.batch; ++b) {
      const int length = q_[i].starts ? q_[i].starts[b + 1] - q_[i].starts[b] : q_[i].length;
      for (int t = 0; t < length; ++t) {
        for (int h = 0; h < spec_.desc.num_q_heads; ++h) f(static_cast<int>(i), b, t, h);
      }
    }
  }
}

std::string Case::check_row(int i, int b, int t, int h) const {
  const AttentionDesc& d = spec_.desc;
  const QSegment& q = q_[i];
  const ReferenceRow want = attention_reference(d, {q_, kv_}, i, b, t, h);
  const int64_t outer = q.starts ? 0 : b;
  const int64_t row = q.starts ? q.starts[b] + t : t;
  const int64_t stat =
      outer * q.row_stride.batch + row * q.row_stride.token + h * q.row_stride.head;
  const auto result = [&](const void* p) {
    return result_.data() + (static_cast<const uint8_t*>(p) - arena_.data());
  };
  const std::string where = fmt::format("segment {} b {} token {} head {}", i, b, t, h);
  // Logits carry f32 rounding of D products; P is rounded to the dtype; exp2 adds 1e-4.
  const double logits = 4 * 0x1p-24 * (d.head_dim_qk / 8 + 4) * (want.s_abs + 1);
  const double u = unit_roundoff(d.dtype);
  // Where row sums come from the tensor cores they carry the rounding of P, too.
  const double sums = d.head_dim_v == 64 ? u : 0;
  double relative = u + sums + 2e-4 + logits;
  if (chain_ > 1) relative += (chain_ - 1) * 2 * unit_roundoff(d.state_dtype);
  const double l_tolerance = sums + 2e-4 + logits;
  if (d.finalize || chain_ > 1) {
    const double got = load(DType::f32, result(q.lse), stat);
    const double lse = want.l > 0 ? want.m + std::log(want.l) : -INFINITY;
    if (!(got == lse || std::abs(got - lse) <= l_tolerance + 0x1p-22 * std::abs(lse))) {
      return fmt::format("{}: lse {} and not {}", where, got, lse);
    }
  } else {
    const double l = load(DType::f32, result(q.state_l), stat);
    const double m = load(DType::f32, result(q.state_m), stat);
    const double got = l > 0 ? m + std::log(l) : -INFINITY;
    const double lse = want.l > 0 ? want.m + std::log(want.l) : -INFINITY;
    if (!(got == lse || std::abs(got - lse) <= l_tolerance + 0x1p-22 * std::abs(lse))) {
      return fmt::format("{}: m + ln l = {} and not {}", where, got, lse);
    }
    if (spec_.empty_state && m == -INFINITY) return "";  // the rest of it means nothing
  }
  for (int x = 0; x < d.head_dim_v; ++x) {
    double got;
    double final_rounding;
    if (d.finalize || chain_ > 1) {
      got = load(d.dtype, result(q.o),
                 outer * q.o_stride.batch + row * q.o_stride.token + h * q.o_stride.head + x);
      final_rounding = u;
    } else {
      const double l = load(DType::f32, result(q.state_l), stat);
      got = load(
          d.state_dtype, result(q.state_o),
          outer * q.state_stride.batch + row * q.state_stride.token + h * q.state_stride.head + x);
      if (l > 0) got /= l;
      final_rounding = unit_roundoff(d.state_dtype);
    }
    const double allowed = relative * want.o_abs[x] + final_rounding * std::abs(want.o[x]) +
                           (d.dtype == DType::f16 ? 0x1p-24 : 1e-30);
    if (!(std::abs(got - want.o[x]) <= allowed)) {
      return fmt::format("{} column {}: {} and not {} (allowed error {})", where, x, got, want.o[x],
                         allowed);
    }
  }
  return "";
}

double Case::distance(const std::vector<uint8_t>& other) const {
  const AttentionDesc& d = spec_.desc;
  double worst = 0;
  double largest = 1e-30;
  for_each_row([&](int i, int b, int t, int h) {
    const QSegment& q = q_[i];
    const int64_t outer = q.starts ? 0 : b;
    const int64_t row = q.starts ? q.starts[b] + t : t;
    const size_t base = static_cast<const uint8_t*>(q.o) - arena_.data();
    const int64_t at = outer * q.o_stride.batch + row * q.o_stride.token + h * q.o_stride.head;
    for (int x = 0; x < d.head_dim_v; ++x) {
      const double a = load(d.dtype, &result_[base], at + x);
      const double c = load(d.dtype, &other[base], at + x);
      if (!(std::abs(a - c) <= worst)) worst = std::abs(a - c);  // NaN wins
      largest = std::max(largest, std::abs(a));
    }
  });
  return worst / (largest * unit_roundoff(d.dtype));
}

std::string Case::check(int max_rows) const {
  const AttentionDesc& d = spec_.desc;
  std::vector<uint8_t> mine(arena_.size(), 0);  // bytes that the call may write
  int64_t rows = 0;
  const auto mark = [&](const void* p, int64_t elem, int64_t count, int bytes) {
    const size_t at = static_cast<const uint8_t*>(p) - arena_.data() + elem * bytes;
    std::memset(&mine[at], 1, count * bytes);
  };
  for_each_row([&](int i, int b, int t, int h) {
    ++rows;
    const QSegment& q = q_[i];
    const int64_t outer = q.starts ? 0 : b;
    const int64_t row = q.starts ? q.starts[b] + t : t;
    const auto at = [&](const Strides& s) { return outer * s.batch + row * s.token + h * s.head; };
    if (d.finalize || chain_ > 1) {
      mark(q.o, at(q.o_stride), d.head_dim_v, 2);
      mark(q.lse, at(q.row_stride), 1, 4);
    }
    if (!d.finalize || chain_ > 1) {
      mark(q.state_o, at(q.state_stride), d.head_dim_v, elem_bytes(d.state_dtype));
      mark(q.state_l, at(q.row_stride), 1, 4);
      mark(q.state_m, at(q.row_stride), 1, 4);
    }
  });
  for (size_t i = 0; i < arena_.size(); ++i) {
    if (!mine[i] && result_[i] != arena_[i]) return fmt::format("byte {} was written", i);
  }
  // A stride coprime to the row count visits rows of all kinds.
  std::string bad;
  int64_t step = std::max<int64_t>(1, rows / max_rows);
  int64_t n = 0;
  int64_t next = 0;
  for_each_row([&](int i, int b, int t, int h) {
    if (n++ == next && bad.empty()) {
      bad = check_row(i, b, t, h);
      next = n + (step > 1 ? static_cast<int64_t>((n * 2654435761u >> 8) % (2 * step - 1)) : 0);
    }
  });
  return bad;
}

}  // namespace braid::cuda::test
