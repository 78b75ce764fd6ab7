// The products of experts on one GPU, in both forms: times of calls inside a CUDA graph, and the
// share of the run's read stream by the bytes of the chosen experts.
//
//   bench_cuda_experts [MODEL [TOKENS]]
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/read_stream.h"
#include "braid/kernels/cuda/experts/device/expert_product.h"
#include "gpu_main.h"
#include "graph_time.h"

namespace braid::cuda {
namespace {

constexpr int kCalls = 6;  // of a graph, each with choices of its own

__global__ void fill(__nv_bfloat16* x, int64_t n, float size) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    const auto bits = static_cast<uint32_t>(i * 2654435761u) ^ static_cast<uint32_t>(i >> 16);
    x[i] = __float2bfloat16_rn(size * (static_cast<float>(bits >> 8) * 0x1p-23f - 1));
  }
}

struct Memory {
  explicit Memory(int64_t elems, float size = 0.5f) : bytes(0, 2 * elems + 256) {
    fill<<<2048, 256>>>(data(), elems, size);
  }
  __nv_bfloat16* data() { return reinterpret_cast<__nv_bfloat16*>(bytes.data()); }
  CudaMemory bytes;
};

struct Table {
  std::vector<int32_t> begin, token;
  int chosen = 0;
};

// Tokens that choose k of E experts evenly.
Table choices(int T, int k, int E, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(E));
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  for (int t = 0; t < T; ++t) {
    std::shuffle(order.begin(), order.end(), rng);
    for (int j = 0; j < k; ++j) rows[order[static_cast<size_t>(j)]].push_back(t);
  }
  Table table{.begin = {0}};
  for (const auto& own : rows) {
    table.token.insert(table.token.end(), own.begin(), own.end());
    table.begin.push_back(static_cast<int32_t>(table.token.size()));
    table.chosen += !own.empty();
  }
  return table;
}

struct Shape {
  const char* name;
  int C, F, E, k;
};

// Of one model and one number of tokens; empty and 0 mean all.
int run(const std::string& model, int tokens) {
  const DeviceInfo info = device_info(0);
  const ExpertDevice device = {info.compute_capability, info.num_sms};
  prepare_expert_products();
  double gbs = 0;
  {
    constexpr int64_t kElems = int64_t{1} << 31;
    Memory big(kElems), sink(2);
    const double us = graph_us(
        [&](cudaStream_t s) {
          read_stream(big.data(), 2 * kElems, sink.data(), info.num_sms, {s, false});
        },
        5);
    gbs = 2.0 * kElems / us * 1e-3;
  }
  std::printf("%s, read stream %.0f GB/s\n", info.name.c_str(), gbs);
  std::printf(
      "| model, product | tokens | rows, experts | chosen | stream us | tiles us | share | TFLOP/s "
      "|\n"
      "|---|---:|---:|---|---:|---:|---:|---:|\n");
  for (const Shape& m : {Shape{"Qwen3-30B-A3B", 2048, 768, 128, 8},
                         {"V2-Lite", 2048, 1408, 64, 6},
                         {"Mixtral-8x7B", 4096, 14336, 8, 2}}) {
    if (!model.empty() && model != m.name) continue;
    for (const bool gated : {true, false}) {
      const int N = gated ? m.F : m.C, K = gated ? m.C : m.F;
      const int64_t elems = int64_t{m.E} * N * K;
      Memory w0(elems), w1(gated ? elems : 1), x(int64_t{8192} * m.k * K),
          y(int64_t{8192} * m.k * N);
      for (const int T : {1, 2, 4, 8, 16, 32, 64, 256, 8192}) {
        if (tokens != 0 && T != tokens) continue;
        std::vector<Table> tables;
        std::vector<std::unique_ptr<CudaMemory>> held;
        double chosen = 0;
        const auto upload = [&](const std::vector<int32_t>& v) {
          held.push_back(std::make_unique<CudaMemory>(0, std::ssize(v) * 4));
          check_cuda(
              cudaMemcpy(held.back()->data(), v.data(), v.size() * 4, cudaMemcpyHostToDevice),
              "bench");
          return reinterpret_cast<const int32_t*>(held.back()->data());
        };
        std::vector<ExpertProduct> calls;
        for (int i = 0; i < kCalls; ++i) {
          const Table table = choices(T, m.k, m.E, static_cast<uint32_t>(i + 1));
          chosen += double(table.chosen) / kCalls;
          ExpertProduct p{.x = x.data(), .x_stride = K, .y = y.data(), .y_stride = N};
          p.begin = upload(table.begin);
          const int32_t* token = upload(table.token);
          if (gated) p.token = token;
          p.w[0] = {.data = w0.data(), .row_bytes = 2 * int64_t{K}};
          p.w[1] = {.data = w1.data(), .row_bytes = 2 * int64_t{K}};
          p.gated = gated;
          p.experts = m.E, p.n = N, p.k = K;
          p.rows = int64_t{T} * m.k, p.rows_of_one = T;
          calls.push_back(p);
        }
        const auto time = [&](const ExpertConfig& config) {
          return graph_us(
                     [&](cudaStream_t s) {
                       for (const ExpertProduct& p : calls) expert_product(p, config, {s, true});
                     },
                     5, 0.5) /
                 kCalls;
        };
        const ExpertConfig config = choose_experts_form(expert_shape(calls[0]), device);
        ExpertShape slow = expert_shape(calls[0]);
        slow.aligned = false;  // as tiles do not take it
        const double stream = T > 1024 ? 0 : time(choose_experts_form(slow, device));
        const double tiles = time({.form = ExpertForm::tiles, .ways = 1, .ctas = info.num_sms});
        const double best = config.form == ExpertForm::tiles ? tiles : stream;
        const double bytes = chosen * N * K * (gated ? 4.0 : 2.0);
        const double flops = 2.0 * T * m.k * N * K * (gated ? 2 : 1);
        std::printf("| %s, %s | %d | %d, %d | %s | %.1f | %.1f | %.0f%% | %.0f |\n", m.name,
                    gated ? "gate and up" : "down", T, T * m.k, int(chosen + 0.5),
                    to_string(config).c_str(), stream, tiles, 100 * bytes / best * 1e-3 / gbs,
                    flops / best * 1e-6);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "";
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 0;
  return braid::cuda::gpu_main("bench_cuda_experts",
                               [&] { return braid::cuda::run(model, tokens); });
}
