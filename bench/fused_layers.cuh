#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/fused_attention/device/fused_launch.h"
#include "braid/kernels/cuda/relay/device/relay_launch.h"

// Layers of random weights for bench_cuda_fused_attention, as fused blocks and as a relay.
namespace braid::cuda {

// bf16 of about N(0, stddev): sums of four uniform bytes.
__global__ void fill_random(__nv_bfloat16* out, int64_t n, float stddev, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = (static_cast<uint32_t>(i) + seed * 0x9e3779b9u) * 2654435761u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    x ^= x >> 16;
    const int sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
    out[i] = __float2bfloat16_rn((sum - 510) / 148.f * stddev);
  }
}

template <class T>
class Array {
 public:
  explicit Array(int64_t n) : n_(n), memory_(0, n * static_cast<int64_t>(sizeof(T))) {}
  explicit Array(const std::vector<T>& host) : Array(std::ssize(host)) {
    check_cuda(cudaMemcpy(data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
               "bench memory");
  }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  void randomize(float stddev, uint32_t seed) {
    fill_random<<<1056, 256>>>(data(), n_, stddev, seed);
    check_cuda(cudaGetLastError(), "fill");
  }
  std::vector<T> host() {
    std::vector<T> result(static_cast<size_t>(n_));
    check_cuda(cudaMemcpy(result.data(), data(), result.size() * sizeof(T), cudaMemcpyDeviceToHost),
               "bench memory");
    return result;
  }

 private:
  int64_t n_;
  CudaMemory memory_;
};

// Layers of one model and one context.
class Layers {
 public:
  Layers(const FusedShape& s, int context)
      : s_(s),
        context_(context),
        count_(static_cast<int>(std::clamp<int64_t>(
            (int64_t{5} << 30) / fused_bytes(s, FusedScope::projected, context), 4, 16))),
        pages_((context + s.page_size - 1) / s.page_size),
        rows_(std::vector<int64_t>{1}),
        position_(std::vector<int32_t>{context - 1}),
        length_(std::vector<int32_t>{context}),
        x_(s.width),
        norm_(std::vector<float>(static_cast<size_t>(s.width), 1.f)) {
    std::vector<int32_t> table(static_cast<size_t>(pages_));
    // Pages in an order that a server's allocator leaves behind.
    for (int64_t i = 0; i < pages_; ++i) table[static_cast<size_t>(i)] = (i * 7919) % pages_;
    if (pages_ % 7919 == 0) std::iota(table.begin(), table.end(), 0);
    const int64_t last = context - 1;
    slot_ = std::make_unique<Array<int32_t>>(std::vector<int32_t>{static_cast<int32_t>(
        table[static_cast<size_t>(last / s.page_size)] * s.page_size + last % s.page_size)});
    table_ = std::make_unique<Array<int32_t>>(table);
    std::vector<uint64_t> turns;
    for (int i = 0; i < s.head_dim / 2; ++i) {
      turns.push_back(static_cast<uint64_t>(
          std::ldexp(std::pow(1e4, -2. * i / s.head_dim) / 6.283185307179586, 64)));
    }
    turns_ = std::make_unique<Array<uint64_t>>(turns);
    std::vector<float> x(static_cast<size_t>(s.width));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    check_cuda(cudaMemcpy(x_.data(), x.data(), x.size() * 4, cudaMemcpyHostToDevice), "x");
    const int64_t C = s.width, D = s.head_dim, heads = s.kv_heads * s.group;
    const int64_t sizes[] = {heads * D * C, s.kv_heads * D * C, s.kv_heads * D * C,
                             s.outputs * heads * D};
    uint32_t seed = 1;
    for (int i = 0; i < count_; ++i) {
      Layer& layer = layers_.emplace_back();
      for (int w = 0; w < 4; ++w) {
        layer.w[w] = std::make_unique<Array<__nv_bfloat16>>(sizes[w]);
        layer.w[w]->randomize(1 / std::sqrt(static_cast<float>(w == 3 ? heads * D : C)), ++seed);
      }
      for (auto* cache : {&layer.k, &layer.v}) {
        *cache = std::make_unique<Array<__nv_bfloat16>>(pages_ * s.page_size * s.kv_heads * D);
        (*cache)->randomize(1, ++seed);
      }
      layer.sum = std::make_unique<Array<float>>(C);
      layer.attended = std::make_unique<Array<__nv_bfloat16>>(heads * D);
      layer.y = std::make_unique<Array<__nv_bfloat16>>(s.outputs);
      layer.qkv = std::make_unique<Array<__nv_bfloat16>>((heads + 2 * s.kv_heads) * D);
    }
    check_cuda(cudaDeviceSynchronize(), "fill");
  }
  int count() const { return count_; }

  std::vector<std::unique_ptr<FusedAttention>> fused(const FusedConfig& config) {
    std::vector<std::unique_ptr<FusedAttention>> blocks;
    const bool projects = config.scope == FusedScope::projected;
    for (int i = 0; i < count_; ++i) {
      Layer& layer = layers_[static_cast<size_t>(i)];
      FusedArgs a{};
      a.rows = rows_.data();
      a.a = i == 0 ? x_.data() : layers_[static_cast<size_t>(i - 1)].sum->data();
      if (i > 0 && projects) a.b = layers_[static_cast<size_t>(i - 1)].y->data();
      a.norm_w = norm_.data();
      a.sum = layer.sum->data();
      for (int w = 0; w < 4; ++w) a.w[w] = layer.w[w]->data();
      a.position = position_.data();
      a.slot = slot_->data();
      a.kv_len = length_.data();
      a.page_table = table_->data();
      a.turns = turns_->data();
      a.cache_k = layer.k->data();
      a.cache_v = layer.v->data();
      a.out = projects ? layer.y->data() : layer.attended->data();
      a.num_slots = static_cast<int32_t>(pages_ * s_.page_size);
      a.pairs = s_.head_dim / 2;
      a.factor = 1;
      a.scale = scale();
      a.eps = kEps;
      blocks.push_back(std::make_unique<FusedAttention>(s_, config, a, 0));
    }
    return blocks;
  }

  // All layers as one relay on at most so many SMs; null where it does not take them.
  std::unique_ptr<Relay> relay(int sms) {
    const int64_t heads = s_.kv_heads * s_.group, D = s_.head_dim, C = s_.width;
    std::vector<RelayStep> steps;
    std::vector<RelayLinearShape> linears;
    std::vector<RelayAttentionShape> attention;
    std::vector<Relay::Cache> caches;
    const auto units = (heads + 2 * s_.kv_heads) * D;
    for (int i = 0; i < count_; ++i) {
      Layer& layer = layers_[static_cast<size_t>(i)];
      RelayStep& qkv = steps.emplace_back();
      qkv.linear = RelayLinear{
          .k = static_cast<int32_t>(C), .units = static_cast<int32_t>(units), .normed = true};
      const int64_t n[] = {heads * D, s_.kv_heads * D, s_.kv_heads * D};
      int64_t at = 0;
      for (int w = 0; w < 3; ++w) {
        qkv.linear.w[w] = reinterpret_cast<const uint8_t*>(layer.w[w]->data());
        qkv.linear.n[w] = static_cast<int32_t>(n[w]);
        qkv.linear.y[w] = layer.qkv->data() + at;
        at += n[w];
      }
      qkv.linear.norm_w = norm_.data();
      qkv.linear.eps = kEps;
      if (i == 0) qkv.linear.a = x_.data();
      if (i > 0) qkv.linear.sum = layer.sum->data();
      linears.push_back({.k = C, .units = units, .normed = true});
      RelayStep& attends = steps.emplace_back();
      attends.attends = true;
      attends.attention = {.position = position_.data(),
                           .slot = slot_->data(),
                           .kv_len = length_.data(),
                           .page_table = table_->data(),
                           .turns = turns_->data(),
                           .cache_k = layer.k->data(),
                           .cache_v = layer.v->data(),
                           .q = layer.qkv->data(),
                           .out = layer.attended->data(),
                           .kv_heads = static_cast<int32_t>(s_.kv_heads),
                           .group = s_.group,
                           .pairs = s_.head_dim / 2,
                           .page_size = static_cast<int32_t>(s_.page_size),
                           .num_slots = static_cast<int32_t>(pages_ * s_.page_size),
                           .factor = 1,
                           .scale = scale()};
      caches.push_back({layer.k->data(), layer.v->data(), pages_ * s_.page_size, s_.kv_heads});
      attention.push_back({.head_dim = s_.head_dim,
                           .group = s_.group,
                           .kv_heads = s_.kv_heads,
                           .page_size = s_.page_size});
      RelayStep& out = steps.emplace_back();
      out.linear = RelayLinear{.k = static_cast<int32_t>(heads * D),
                               .units = static_cast<int32_t>(s_.outputs)};
      out.linear.w[0] = reinterpret_cast<const uint8_t*>(layer.w[3]->data());
      out.linear.n[0] = static_cast<int32_t>(s_.outputs);
      out.linear.y[0] = layer.y->data();
      linears.push_back({.k = heads * D, .units = s_.outputs});
    }
    const DeviceInfo device = device_info(0);
    const auto config = choose_relay(linears, attention,
                                     {.compute_capability = device.compute_capability,
                                      .num_sms = std::min(sms, device.num_sms),
                                      .smem_per_cta = device.shared_memory_per_cta});
    if (!config || !Relay::fits(*config, device)) return nullptr;
    return std::make_unique<Relay>(std::move(steps), caches,
                                   std::vector<std::shared_ptr<DeviceMemory>>{}, *config,
                                   rows_.data(), 0, nullptr);
  }

  // The last layer's result, to compare the two by.
  std::vector<float> result() {
    std::vector<float> values;
    for (const __nv_bfloat16 y : layers_.back().y->host()) values.push_back(__bfloat162float(y));
    return values;
  }

 private:
  static constexpr float kEps = 1e-5f;
  float scale() const { return 1 / std::sqrt(static_cast<float>(s_.head_dim)); }

  struct Layer {
    std::unique_ptr<Array<__nv_bfloat16>> w[4], k, v, attended, y, qkv;
    std::unique_ptr<Array<float>> sum;
  };
  const FusedShape s_;
  const int context_;
  const int count_;
  const int64_t pages_;
  Array<int64_t> rows_;
  Array<int32_t> position_, length_;
  Array<float> x_, norm_;
  std::unique_ptr<Array<int32_t>> slot_, table_;
  std::unique_ptr<Array<uint64_t>> turns_;
  std::vector<Layer> layers_;
};

}  // namespace braid::cuda
