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
#include <string>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/read_stream.h"
#include "fused_layers.cuh"
#include "gpu_main.h"
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
    {"7b, rank of 2", shape_of(4096, 16, 1, 128)}, {"64 heads of 64", shape_of(4096, 64, 1, 64)},
    {"64 heads", shape_of(4096, 64, 1, 128)},      {"128 heads", shape_of(4096, 128, 1, 128)},
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
    const int sms = device_info(0).num_sms;
    if (const auto relay = layers.relay(sms)) {
      relay_us_ = time(layers, [&](LaunchContext c) { relay->launch(c); });
      reference_ = layers.result();
      report(model, context, "relay", FusedScope::projected, relay_us_, layers);
      // A relay launched in clusters of that size has the SMs that all clusters together reach.
      for (const int size : {4, 8, 16}) {
        const int ctas = device.clusters[static_cast<size_t>(size)] * size;
        const auto less = layers.relay(ctas);
        if (less == nullptr) continue;
        const double us = time(layers, [&](LaunchContext c) { less->launch(c); });
        report(model, context, fmt::format("relay of {} CTAs", ctas), FusedScope::projected, us,
               layers);
      }
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
    const auto chain = [&] {
      return time(layers, [&](LaunchContext c) {
        for (auto& block : blocks) block->launch(c);
      });
    };
    report(model, context, to_string(config), config.scope, chain(), layers);
    if (!flow_) return;
    for (const auto& [copies, words] :
         {std::pair{3, 2}, {4, 4}, {6, 2}, {8, 2}, {11, 2}, {11, 11}}) {
      for (auto& block : blocks) block->set_in_flight(copies, words);
      report(model, context, fmt::format("{} with {} copies, {}", to_string(config), copies, words),
             config.scope, chain(), layers);
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
  if (json_path != nullptr) write_results(json_path, bench.results.dump(1));
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  return braid::cuda::gpu_main("bench_cuda_fused_attention",
                               [&] { return braid::cuda::run(argc, argv); });
}
