#include "backend/cuda/decode/decode_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "braid/kernels/cuda/decode/layout.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {

struct DecodeCase::Host {
  std::vector<std::byte> q, k, v;
  std::vector<int32_t> q_start, kv_len, page_table;
  std::vector<int64_t> new_slots;
  int64_t pages = 0;
  int64_t tokens = 0;  // capacity
  int64_t live_tokens = 0;
  int table_stride = 1;
};

DecodeCase::Host DecodeCase::make_host(const DecodeSpec& spec) {
  Host h;
  std::mt19937_64 rng(spec.seed);
  std::normal_distribution<float> normal;
  const int64_t D = spec.attrs.head_dim;
  const auto page_count = [&](int keys) { return (keys + spec.page_size - 1) / spec.page_size; };
  h.q_start = {0};
  h.pages = 2;  // that no sequence owns
  for (const Lengths& l : spec.live) {
    h.live_tokens += l.q_len;
    h.q_start.push_back(static_cast<int32_t>(h.live_tokens));
    h.kv_len.push_back(l.kv_len);
    h.pages += page_count(l.kv_len);
    h.table_stride = std::max(h.table_stride, page_count(l.kv_len) + 1);
  }
  for (int i = 0; i < spec.spare_sequences; ++i) {
    h.q_start.push_back(1 << 20);
    h.kv_len.push_back(1 << 20);
  }
  h.tokens = std::max<int64_t>(1, h.live_tokens + spec.spare_tokens);

  std::vector<int32_t> free(static_cast<size_t>(h.pages));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), rng);
  const int32_t unused = free.back();
  free.pop_back();
  h.page_table.assign(h.kv_len.size() * static_cast<size_t>(h.table_stride), unused);

  const int64_t row = bytes_of(spec.cache_dtype, D);
  const auto slots = static_cast<size_t>(h.pages * spec.page_size);
  h.k.assign(slots * static_cast<size_t>(spec.kv_heads * row), std::byte{0xff});  // NaN
  h.v = h.k;
  std::vector<float> values(static_cast<size_t>(D));
  const auto write = [&](std::vector<std::byte>& cache, int64_t slot, int64_t head) {
    for (float& x : values) x = normal(rng);
    quantize_row(spec.cache_dtype, values.data(),
                 cache.data() + (slot * spec.kv_heads + head) * row, D);
  };
  for (size_t s = 0; s < spec.live.size(); ++s) {
    const Lengths& l = spec.live[s];
    for (int j = 0; j < l.kv_len; ++j) {
      int32_t& page = h.page_table[s * static_cast<size_t>(h.table_stride) +
                                   static_cast<size_t>(j / spec.page_size)];
      if (j % spec.page_size == 0) {
        page = free.back();
        free.pop_back();
      }
      const int64_t slot = int64_t{page} * spec.page_size + j % spec.page_size;
      if (j >= l.kv_len - l.q_len) h.new_slots.push_back(slot);
      for (int64_t head = 0; head < spec.kv_heads; ++head) {
        write(h.k, slot, head);
        write(h.v, slot, head);
      }
    }
  }
  const int64_t q_row = bytes_of(spec.q_dtype, D);
  h.q.assign(static_cast<size_t>(h.tokens * spec.q_heads * q_row), std::byte{0xff});
  for (int64_t i = 0; i < h.live_tokens * spec.q_heads; ++i) {
    // f32 queries hold what bf16 can: the kernel rounds them.
    std::vector<std::byte> rounded(static_cast<size_t>(2 * D));
    for (float& x : values) x = normal(rng);
    quantize_row(DType::bf16, values.data(), rounded.data(), D);
    dequantize_row(DType::bf16, rounded.data(), values.data(), D);
    quantize_row(spec.q_dtype, values.data(), h.q.data() + i * q_row, D);
  }
  return h;
}

DecodeCase::DecodeCase(const DecodeSpec& spec) : DecodeCase(spec, make_host(spec)) {}

DecodeCase::DecodeCase(const DecodeSpec& spec, Host h)
    : spec_(spec),
      host_q_(std::move(h.q)),
      host_k_(std::move(h.k)),
      host_v_(std::move(h.v)),
      host_q_start_(std::move(h.q_start)),
      host_kv_len_(std::move(h.kv_len)),
      host_page_table_(std::move(h.page_table)),
      new_slots_(std::move(h.new_slots)),
      pages_(h.pages),
      live_tokens_(h.live_tokens),
      q_(host_q_),
      k_(host_k_),
      v_(host_v_),
      out_(static_cast<size_t>(
          bytes_of(spec.out_dtype, h.tokens * spec.q_heads * spec.attrs.head_dim))),
      q_start_(host_q_start_),
      kv_len_(host_kv_len_),
      page_table_(host_page_table_),
      sequences_(std::vector<int64_t>{static_cast<int64_t>(spec.live.size())}) {
  desc_.attrs = spec.attrs;
  desc_.q_dtype = spec.q_dtype;
  desc_.cache_dtype = spec.cache_dtype;
  desc_.out_dtype = spec.out_dtype;
  desc_.num_q_heads = spec.q_heads;
  desc_.num_kv_heads = spec.kv_heads;
  desc_.page_size = spec.page_size;
  desc_.table_stride = h.table_stride;
  desc_.max_sequences = static_cast<int>(host_kv_len_.size());
  desc_.max_tokens = static_cast<int>(h.tokens);
  set_reference(spec.attrs);
}

void DecodeCase::set_reference(const ops::AttentionAttrs& attrs) {
  const int64_t columns = spec_.q_heads * attrs.head_dim;
  const int64_t tokens = std::max<int64_t>(1, live_tokens_);
  const auto sequences = static_cast<int64_t>(host_kv_len_.size());
  reference_.assign(static_cast<size_t>(tokens * columns), NAN);
  const Shape cache{pages_, spec_.page_size, spec_.kv_heads, attrs.head_dim};
  const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const TensorView in[] = {
      make_view(bytes(host_q_), spec_.q_dtype, {tokens, columns}),
      make_view(bytes(host_k_), spec_.cache_dtype, cache),
      make_view(bytes(host_v_), spec_.cache_dtype, cache),
      make_view(bytes(host_q_start_), DType::i32, {sequences + 1}),
      make_view(bytes(host_kv_len_), DType::i32, {sequences}),
      make_view(bytes(host_page_table_), DType::i32, {sequences, desc_.table_stride})};
  const TensorView out[] = {make_view(bytes(reference_), DType::f32, {tokens, columns})};
  Op op;
  op.def = &ops::kAttention;
  op.attrs = Attrs::of(attrs);
  BatchPart part;
  part.count.token = live_tokens_;
  part.count.sequence = static_cast<int64_t>(spec_.live.size());
  ops::kAttention.reference({&op, in, out, BatchAxis::token, &part});
}

DecodeParams DecodeCase::params(const DecodeConfig& config) {
  if (!workspace_ || !(workspace_of_ == config)) {
    workspace_ =
        std::make_unique<DeviceBuffer<std::byte>>(static_cast<size_t>(config.workspace_bytes));
    workspace_->fill(0);
    workspace_of_ = config;
  }
  DecodeParams p;
  p.q = q_.data();
  p.k_cache = k_.data();
  p.v_cache = v_.data();
  p.q_start = q_start_.data();
  p.kv_len = kv_len_.data();
  p.page_table = page_table_.data();
  p.sequences = sequences_.data();
  p.out = out_.data();
  p.workspace = workspace_->data();
  return p;
}

void DecodeCase::run(const DecodeConfig& config, LaunchContext context) {
  poison_output();
  prepare_decode_attention(desc_, config);
  decode_attention(desc_, params(config), config, context);
  check_cuda(cudaDeviceSynchronize(), "decode attention");
}

std::string DecodeCase::check() const {
  const std::vector<std::byte> raw = out_.download();
  const int64_t D = spec_.attrs.head_dim;
  const int64_t columns = spec_.q_heads * D;
  const int64_t row_bytes = bytes_of(spec_.out_dtype, columns);
  std::vector<float> got(static_cast<size_t>(columns));
  for (int64_t t = 0; t < live_tokens_; ++t) {
    dequantize_row(spec_.out_dtype, raw.data() + t * row_bytes, got.data(), columns);
    for (int64_t head = 0; head < spec_.q_heads; ++head) {
      const float* ref = &reference_[static_cast<size_t>(t * columns + head * D)];
      double error = 0;
      double norm = 0;
      for (int64_t d = 0; d < D; ++d) {
        const double x = got[static_cast<size_t>(head * D + d)];
        if (!(std::abs(x) < 1e30)) {
          return fmt::format("token {} head {} dim {} is {}", t, head, d, x);
        }
        error += (x - ref[d]) * (x - ref[d]);
        norm += double{ref[d]} * ref[d];
      }
      // Weights and outputs are rounded to 8 bits at least: half of 2^-8 each, independently.
      if (std::sqrt(error) > std::ldexp(1., -7) * std::sqrt(norm)) {
        return fmt::format("token {} head {}: off by {:.2e} of its norm {:.2e}", t, head,
                           std::sqrt(error / norm), std::sqrt(norm));
      }
    }
  }
  for (size_t i = static_cast<size_t>(live_tokens_ * row_bytes); i < raw.size(); ++i) {
    if (raw[i] != std::byte{0xff}) return fmt::format("byte {} beyond the live rows is written", i);
  }
  const std::vector<std::byte> workspace = workspace_->download();
  for (int i = 0; i < DecodeWorkspace(static_cast<int>(D), workspace_of_.ctas).stats; ++i) {
    if (workspace[static_cast<size_t>(i)] != std::byte{0}) {
      return fmt::format("counter {} is not zero again", i / 4);
    }
  }
  return "";
}

}  // namespace braid::cuda::test
