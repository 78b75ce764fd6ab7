// The linear layers of decode against the speed of a read-only stream, in one run: single products
// for 1 to 64 tokens beside cuBLASLt's, block formats, the weights of a whole Llama-2-7B step in
// one graph with and without programmatic dependent launch, and dequantization.
//   bench_cuda_linear [--quick] [--tokens M] [--kernel few|skinny] [--json FILE]
//                     [--only stream|single|formats|step|dequantize|cuts]
// cuts: every panel of up to 16 groups, with K in 1 to 4 shares, of rings as large as an SM's
// memory and as half of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "braid/backend/cuda/read_stream.h"
#include "braid/kernels/cuda/linear/device/dequantize.h"
#include "braid/kernels/cuda/linear/device/few_linear.h"
#include "braid/kernels/cuda/linear/device/gemm.h"
#include "braid/kernels/cuda/linear/device/panel_linear.h"
#include "gpu_main.h"
#include "graph_time.h"
#include "linear_layers.h"

using namespace braid;
using namespace braid::cuda;

namespace {

struct Options {
  bool quick = false;
  int tokens = 0;
  std::string kernel = "few", only, json;
};

Options g_options;
SkinnyDevice g_device;
std::map<std::string, double> g_results;

// Finite, varied 16-bit values: bf16 in +-2^-6 or so. Zeros would read faster than real data.
__global__ void fill_random(uint32_t* out, size_t words, uint32_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += stride) {
    uint32_t h = static_cast<uint32_t>(i) * 0x9e3779b9u + seed;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    out[i] = (h & 0x807f807fu) | 0x3c003c00u | (h >> 3 & 0x00800080u);
  }
}

void fill(const DeviceArray& a, uint32_t seed) {
  fill_random<<<1056, 256>>>(reinterpret_cast<uint32_t*>(a.data), a.size / 4, seed);
  check_cuda(cudaGetLastError(), "fill");
}

int replays() {
  return g_options.quick ? 5 : 15;
}

double stream_bytes_per_us(const DeviceArray& pool) {
  const size_t bytes = std::min<size_t>(pool.size, size_t{4} << 30);
  DeviceArray out(4);
  double best = 0;
  for (int ctas : {132, 264}) {
    const double us = graph_us(
        [&](cudaStream_t s) {
          read_stream(pool.data, bytes, out.data, ctas * g_device.num_sms / 132, {s});
        },
        replays());
    best = std::max(best, bytes / us);
  }
  return best;
}

FewConfig config_of(const SkinnyParams& p) {
  if (g_options.kernel == "skinny") return choose_skinny(skinny_shape(p), g_device);
  return choose_few(p, g_device);
}

// Microseconds of a product by cuBLASLt, tuned, the parts of a layer as one; 0 where it is not.
double library_us(const Layer& layer, int m, const DeviceArray& pool, const Buffers& buffers,
                  int64_t count) {
  static const std::shared_ptr<const CublasLt> library =
      cublaslt_available() ? CublasLt::load() : nullptr;
  if (library == nullptr) return 0;
  Gemm gemm(library, {.m = m, .n = layer.columns(), .k = layer.k});
  const DeviceArray workspace(std::max<size_t>(gemm.workspace_bytes(), 1));
  GemmPointers p = {
      .x = buffers.x.data, .w = pool.data, .y = buffers.y.data, .workspace = workspace.data};
  gemm.prepare(p, nullptr, true);
  return graph_us(
             [&](cudaStream_t s) {
               for (int64_t i = 0; i < count; ++i) {
                 p.w = pool.data + i * layer.bytes(DType::bf16);
                 gemm.run({s, false}, p);
               }
             },
             replays()) /
         static_cast<double>(count);
}

void print_single_header() {
  std::printf(
      "\n| layer | weights | tokens | us | of stream | us, dependent launch | of stream | "
      "us, cuBLASLt | config |\n|---|---|---|---|---|---|---|---|---|\n");
}

// Many launches on weights that rotate through the pool.
void bench_single(const Layer& layer, DType dtype, int m, const DeviceArray& pool,
                  const Buffers& buffers, double stream) {
  const int64_t bytes = layer.bytes(dtype);
  const int64_t count = std::min<int64_t>(pool.size / bytes, g_options.quick ? 24 : 48);
  std::string shown;
  double us[2];
  for (const bool pdl : {false, true}) {
    us[pdl] = graph_us(
                  [&](cudaStream_t s) {
                    for (int64_t i = 0; i < count; ++i) {
                      const SkinnyParams p =
                          make_params(layer, dtype, pool.data + i * bytes, m, buffers, false);
                      const FewConfig c = config_of(p);
                      shown = to_string(c);
                      few_linear(p, c, {s, pdl});
                    }
                  },
                  replays()) /
              count;
  }
  const std::string dtype_name(name(dtype));
  const double library = dtype == DType::bf16 ? library_us(layer, m, pool, buffers, count) : 0;
  std::printf("| %s | %s | %d | %.2f | %.1f%% | %.2f | %.1f%% | %.2f | %s |\n", layer.name,
              dtype_name.c_str(), m, us[0], 100 * bytes / us[0] / stream, us[1],
              100 * bytes / us[1] / stream, library, shown.c_str());
  g_results[std::string("single.") + layer.name + "." + dtype_name + "." + std::to_string(m)] =
      bytes / us[1] / stream;
  if (library > 0) {
    g_results[std::string("cublaslt.") + layer.name + "." + std::to_string(m)] = library;
  }
}

void bench_cuts(const Layer& layer, int m, const DeviceArray& pool, const Buffers& buffers,
                double stream) {
  const int64_t bytes = layer.bytes(DType::bf16);
  const int64_t count = std::min<int64_t>(pool.size / bytes, 24);
  const PanelShape shape =
      panel_shape(make_params(layer, DType::bf16, pool.data, m, buffers, false));
  std::vector<std::pair<double, std::string>> found;
  for (const int ring : {g_device.smem_per_cta, 112 << 10}) {
    for (int split = 1; split <= 4; split *= 2) {
      for (int groups = 1; groups <= kPanelMaxGroups; ++groups) {
        const PanelConfig c = panel_cut(shape, groups, split, ring);
        if (!panel_fits(shape, c, g_device) || panel_smem(shape, c).total > ring) continue;
        const double us = graph_us(
                              [&](cudaStream_t s) {
                                for (int64_t i = 0; i < count; ++i) {
                                  const SkinnyParams p = make_params(
                                      layer, DType::bf16, pool.data + i * bytes, m, buffers, false);
                                  panel_linear(p, c, {s, true});
                                }
                              },
                              5) /
                          count;
        found.emplace_back(
            us, fmt::format("{}, {} CTAs", to_string(c), panel_clusters(shape, c) * c.split));
      }
    }
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < std::min<size_t>(found.size(), 8); ++i) {
    std::printf("| %s | %d | %.2f | %.1f%% | %s |\n", layer.name, m, found[i].first,
                100 * bytes / found[i].first / stream, found[i].second.c_str());
  }
}

void bench_step(int m, const DeviceArray& pool, const Buffers& buffers, double stream) {
  int64_t bytes = 0;
  for (const bool fused : {false, true}) {
    if (fused && m > 4) continue;
    double us[2];
    for (const bool pdl : {false, true}) {
      us[pdl] = graph_us(
          [&](cudaStream_t s) {
            const uint8_t* w = pool.data;
            const auto add = [&](const Layer& layer) {
              const SkinnyParams p = make_params(layer, DType::bf16, w, m, buffers, fused);
              few_linear(p, config_of(p), {s, pdl});
              w += layer.bytes(DType::bf16);
            };
            for (int i = 0; i < 32; ++i) {
              for (const Layer& layer : kLayers) add(layer);
            }
            add(kHead);
            bytes = w - pool.data;
          },
          replays());
    }
    std::printf("| %d | %s | %.1f | %.1f%% | %.1f | %.1f%% |\n", m,
                fused ? "norm and residual" : "none", us[0], 100 * bytes / us[0] / stream, us[1],
                100 * bytes / us[1] / stream);
    g_results["step." + std::to_string(m) + (fused ? ".fused" : "")] = bytes / us[1] / stream;
  }
}

bool wanted(const char* what) {
  return g_options.only.empty() || g_options.only == what;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--quick") {
      o.quick = true;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "bench_cuda_linear: unknown or incomplete option %s\n", argv[i]);
      std::exit(1);
    }
    const std::string value = argv[++i];
    if (key == "--tokens") {
      o.tokens = std::atoi(value.c_str());
      if (o.tokens < 1 || o.tokens > kPanelMaxTokens) {
        std::fprintf(stderr, "bench_cuda_linear: --tokens %s: 1 to %d\n", value.c_str(),
                     kPanelMaxTokens);
        std::exit(1);
      }
    }
    if (key == "--kernel") o.kernel = value;
    if (key == "--only") o.only = value;
    if (key == "--json") o.json = value;
  }
  return o;
}

int run() {
  prepare_few_linear();
  cudaDeviceProp prop;
  check_cuda(cudaGetDeviceProperties(&prop, 0), "properties");
  g_device = {10 * prop.major + prop.minor, prop.multiProcessorCount,
              static_cast<int>(prop.sharedMemPerBlockOptin),
              static_cast<int>(prop.sharedMemPerMultiprocessor)};
  int64_t bytes = kHead.bytes(DType::bf16);
  for (const Layer& layer : kLayers) bytes += 32 * layer.bytes(DType::bf16);
  const DeviceArray pool(bytes);
  fill(pool, 1);
  const Buffers buffers;
  fill(buffers.x, 2);
  fill(buffers.y, 3);
  fill(buffers.unit, 4);
  check_cuda(cudaDeviceSynchronize(), "fill");
  const double stream = stream_bytes_per_us(pool);
  g_results["stream.GB_s"] = stream / 1e3;
  std::printf("read-only stream: %.0f GB/s on %s\n", stream / 1e3, prop.name);

  std::vector<int> tokens = {1, 4, 8, 16, 32, kPanelMaxTokens};
  if (g_options.tokens > 0) tokens = {g_options.tokens};
  if (wanted("single")) {
    print_single_header();
    for (int m : tokens) {
      for (const Layer& layer : kLayers) {
        bench_single(layer, DType::bf16, m, pool, buffers, stream);
      }
      bench_single(kHead, DType::bf16, m, pool, buffers, stream);
      for (const Layer& layer : kLayers8B) {
        bench_single(layer, DType::bf16, m, pool, buffers, stream);
      }
    }
  }
  if (g_options.only == "cuts") {
    std::printf(
        "\n| layer | tokens | us, dependent launch | of stream | config |\n"
        "|---|---|---|---|---|\n");
    for (int m : tokens) {
      for (const Layer& layer : kLayers) bench_cuts(layer, m, pool, buffers, stream);
      for (const Layer& layer : kLayers8B) bench_cuts(layer, m, pool, buffers, stream);
    }
  }
  if (wanted("formats")) {
    print_single_header();
    for (DType dtype : {DType::f16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_k,
                        DType::q5_k, DType::q6_k}) {
      for (int m : {1, 8, 16, 32}) {
        bench_single(kLayers[2], dtype, g_options.tokens > 0 ? g_options.tokens : m, pool, buffers,
                     stream);
        if (g_options.tokens > 0) break;
      }
    }
  }
  if (wanted("step")) {
    std::printf(
        "\n| tokens | fused | us, 129 launches | of stream | us, dependent launch | of stream "
        "|\n|---|---|---|---|---|---|\n");
    for (int m : tokens) bench_step(m, pool, buffers, stream);
  }
  if (wanted("dequantize")) {
    std::printf("\n| weights | us | of stream, bytes read and written |\n|---|---|---|\n");
    const DeviceArray out(size_t{22016} * 4096 * 2);
    for (DType dtype : {DType::f32, DType::f16, DType::q4_0, DType::q4_1, DType::q8_0, DType::q4_k,
                        DType::q6_k}) {
      DequantizeParams p{pool.data, dtype, bytes_of(dtype, 4096), out.data, 4096, 22016, 4096};
      const int64_t step = p.n * p.row_bytes;
      const double us = graph_us(
                            [&](cudaStream_t s) {
                              for (int i = 0; i < 16; ++i) {
                                p.w = pool.data + i * step;
                                dequantize(p, {s, false});
                              }
                            },
                            replays()) /
                        16;
      const double share = (step + out.size) / us / stream;
      std::printf("| %s | %.1f | %.1f%% |\n", std::string(name(dtype)).c_str(), us, 100 * share);
      g_results["dequantize." + std::string(name(dtype))] = share;
    }
  }
  if (!g_options.json.empty()) {
    std::ofstream file(g_options.json);
    file << nlohmann::json(g_results).dump(2) << "\n";
    if (!file.flush()) {
      std::fprintf(stderr, "bench_cuda_linear: cannot write %s\n", g_options.json.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return gpu_main("bench_cuda_linear", [&] {
    g_options = parse(argc, argv);
    return run();
  });
}
