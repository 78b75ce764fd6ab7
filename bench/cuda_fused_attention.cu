// Attention blocks of one token on one GPU, as fused launches of a cluster a KV head and as a relay
// of the same layers: norm, q k v, rope, cache, attention and, unless said, the output projection.
// Microseconds a layer in a captured chain of layers that each have weights and a cache of their
// own, and the time that the same bytes take by a read-only stream measured beside it.
//
//   bench_cuda_fused_attention [--json FILE] [--only MODEL] [--flow]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/read_stream.h"
#include "braid/kernels/cuda/fused_attention/device/fused_launch.h"
#include "braid/kernels/cuda/relay/device/relay_launch.h"
#include "graph_time.h"

namespace braid::cuda {
namespace {

using Json = nlohmann::json;

struct Model {
  const char* name;
  FusedShape shape;
};

FusedShape shape_of(int64_t width, int64_t kv_heads, int group, int head_dim) {
  return {.width = width,
          .kv_heads = kv_heads,
          .group = group,
          .head_dim = head_dim,
          .page_size = 64,
          .outputs = width};
}

const Model kModels[] = {
    {"llama-2-7b", shape_of(4096, 32, 1, 128)},    {"llama-3.2-1b", shape_of(2048, 8, 4, 64)},
    {"qwen3-0.6b", shape_of(1024, 8, 2, 128)},     {"llama-3-8b", shape_of(4096, 8, 4, 128)},
    {"7b, rank of 2", shape_of(4096, 16, 1, 128)}, {"64 heads", shape_of(4096, 64, 1, 64)},
};

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

  // All layers as one relay; null where it does not take them.
  std::unique_ptr<Relay> relay() {
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
                                      .num_sms = device.num_sms,
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

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

class Bench {
 public:
  explicit Bench(bool flow) : flow_(flow) {
    const int64_t bytes = int64_t{4} << 30;
    CudaMemory data(0, bytes), sink(0, 16);
    const double us = graph_us(
        [&](cudaStream_t s) {
          read_stream(data.data(), static_cast<size_t>(bytes), sink.data(),
                      2 * device_info(0).num_sms, {s});
        },
        10);
    stream_ = static_cast<double>(bytes) / us;
    std::printf("%s, read-only stream %.0f GB/s; us a layer\n\n", device_info(0).name.c_str(),
                stream_ / 1e3);
    std::printf("| model | context | as | us | floor | of the floor | of the relay | away |\n");
    std::printf("|---|---|---|---|---|---|---|---|\n");
  }

  void run(const Model& model, int context) {
    Layers layers(model.shape, context);
    const FusedDevice device = fused_device(device_info(0), model.shape.head_dim);
    relay_us_ = 0;
    reference_.clear();
    if (const auto relay = layers.relay()) {
      relay_us_ = time(layers, [&](LaunchContext c) { relay->launch(c); });
      reference_ = layers.result();
      report(model, context, "relay", FusedScope::projected, relay_us_, layers);
    }
    for (const auto scope : {FusedScope::projected, FusedScope::qkv}) {
      for (const auto path : {ExchangePath::chip, ExchangePath::memory}) {
        const auto configs = fused_candidates(model.shape, scope, path, device);
        if (configs.empty()) {
          std::printf("| %s | %d | fused: %s | | | | | |\n", model.name, context,
                      why_not_fused(model.shape, scope, device).c_str());
        }
        for (const FusedConfig& config : configs) {
          fused(model, context, config, layers);
        }
      }
    }
    std::fflush(stdout);
  }
  Json results = Json::array();

 private:
  template <class F>
  double time(const Layers& layers, const F& launch) {
    return graph_us([&](cudaStream_t s) { launch(LaunchContext{s, true}); }, 20) / layers.count();
  }

  void fused(const Model& model, int context, const FusedConfig& config, Layers& layers) {
    auto blocks = layers.fused(config);
    const auto chain = [&](int in_flight, int in_words) {
      for (auto& block : blocks) block->set_in_flight(in_flight, in_words);
      return time(layers, [&](LaunchContext c) {
        for (auto& block : blocks) block->launch(c);
      });
    };
    report(model, context, to_string(config), config.scope, chain(4, 2), layers);
    if (!flow_) return;
    for (const auto& [copies, words] :
         {std::pair{3, 2}, {4, 4}, {6, 2}, {8, 2}, {11, 2}, {11, 11}}) {
      report(model, context, fmt::format("{} with {} copies, {}", to_string(config), copies, words),
             config.scope, chain(copies, words), layers);
    }
  }

  void report(const Model& model, int context, const std::string& as, FusedScope scope, double us,
              Layers& layers) {
    const double floor = static_cast<double>(fused_bytes(model.shape, scope, context)) / stream_;
    const bool comparable = scope == FusedScope::projected && !reference_.empty();
    std::printf(
        "| %s | %d | %s | %.1f | %.1f | %.2f | %s | %s |\n", model.name, context, as.c_str(), us,
        floor, us / floor, comparable ? fmt::format("{:.2f}", us / relay_us_).c_str() : "",
        comparable ? fmt::format("{:.1g}", distance(layers.result(), reference_)).c_str() : "");
    results.push_back({{"model", model.name},
                       {"context", context},
                       {"as", as},
                       {"us", us},
                       {"floor_us", floor},
                       {"relay_us", relay_us_}});
  }

  const bool flow_;
  double stream_ = 0;  // bytes a microsecond
  double relay_us_ = 0;
  std::vector<float> reference_;
};

int run(int argc, char** argv) {
  const char* json_path = nullptr;
  std::string only;
  bool flow = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--flow") == 0) {
      flow = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE] [--only MODEL] [--flow]\n", argv[0]);
      return 2;
    }
  }
  if (device_count() == 0 || device_info(0).compute_capability != 90) {
    std::printf("no GPU with clusters: nothing to measure\n");
    return 0;
  }
  Bench bench(flow);
  for (const Model& model : kModels) {
    if (std::string(model.name).find(only) == std::string::npos) continue;
    for (const int context : {1024, 4096, 16384}) bench.run(model, context);
  }
  if (json_path != nullptr) {
    std::FILE* file = std::fopen(json_path, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "%s cannot be written\n", json_path);
      return 1;
    }
    std::fputs(bench.results.dump(1).c_str(), file);
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  try {
    return braid::cuda::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
