// Sampling, the next step's inputs, random weights and uploads on one GPU: times of calls inside a
// CUDA graph, and the share of what memory or the host link could do in the same run.
//
//   bench_cuda_sampling [--json FILE] [--all-configs]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "braid/backend/cuda/upload.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/device/advance.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"
#include "braid/kernels/cuda/sampling/device/ring.h"
#include "gpu_main.h"
#include "graph_time.h"

namespace braid::cuda {
namespace {

using Json = nlohmann::json;

template <class T>
class Device {
 public:
  explicit Device(size_t n) : n_(n) {
    check_cuda(cudaMalloc(&data_, std::max<size_t>(1, n) * sizeof(T)), "bench memory");
    check_cuda(cudaMemset(data_, 0, n * sizeof(T)), "bench memory");
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  T* data() const { return data_; }
  void set(const std::vector<T>& values) {
    check_cuda(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
               "bench copy");
  }

 private:
  size_t n_;
  T* data_ = nullptr;
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Microseconds of one of `calls` calls in a graph.
double call_us(int calls, const std::function<void(LaunchContext)>& call) {
  return graph_us(
             [&](cudaStream_t stream) {
               for (int i = 0; i < calls; ++i) call({stream, true});
             },
             20) /
         calls;
}

struct Mode {
  const char* name;
  SamplerParams params;
};

SamplerParams drawn(int top_k, float top_p) {
  SamplerParams p;
  p.temperature = 1;
  p.top_k = top_k;
  p.top_p = top_p;
  return p;
}

std::vector<Mode> modes() {
  SamplerParams logprobs;
  logprobs.logprobs = 5;
  SamplerParams penalties;
  penalties.repetition_penalty = 1.1f;
  penalties.frequency_penalty = 0.1f;
  SamplerParams all = drawn(50, 0.95f);
  all.repetition_penalty = 1.1f;
  all.logprobs = 5;
  return {{"greedy", {}},
          {"temperature", drawn(0, 1)},
          {"top-k 50", drawn(50, 1)},
          {"top-p 0.95", drawn(0, 0.95f)},
          {"top-k 50, top-p 0.95", drawn(50, 0.95f)},
          {"greedy, 5 logprobs", logprobs},
          {"greedy, penalties", penalties},
          {"all of it", all}};
}

// `us`: the logits are where the head has just written them, in L2 as far as they fit. `cold us`:
// each call has other ones, 256 MB of them in turn.
void bench_sampling(Json& results, bool all_configs) {
  std::printf(
      "| V | rows | sampling | config | us | cold us | GB/s |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [vocab, rows] : {std::pair{131072, 1},
                                    {131072, 4},
                                    {131072, 32},
                                    {32000, 1},
                                    {32000, 32},
                                    {262144, 1},
                                    {131072, 128}}) {
    const SamplingDesc desc{vocab, rows};
    const size_t row_elems = static_cast<size_t>(vocab);
    const size_t one = row_elems * static_cast<size_t>(rows);
    const int copies = static_cast<int>(std::clamp<size_t>((256u << 20) / (4 * one), 1, 32));
    Device<float> logits(one * static_cast<size_t>(copies));
    {
      std::mt19937 random(1);
      std::normal_distribution<float> normal(0, 3);
      std::vector<float> host(one * static_cast<size_t>(copies));
      std::vector<float> table(65536);
      for (float& x : table) x = normal(random);
      for (float& x : host) x = table[random() & 65535] + 1e-4f * static_cast<float>(random() & 63);
      logits.set(host);
    }
    Device<int64_t> live(1);
    live.set({rows});
    Device<SamplerParams> params(static_cast<size_t>(rows));
    Device<SamplerState> states(static_cast<size_t>(rows));
    Device<uint32_t> counts(one);
    Device<uint64_t> step(1);
    Device<int32_t> ids(static_cast<size_t>(rows));
    Device<float> workspace(workspace_bytes(desc, {}) / sizeof(float));
    SampleRing ring(4, rows, 8);
    const SamplingConfig best = choose(desc, sampling_device());
    for (const SamplingConfig& config : candidates(desc, sampling_device())) {
      if (!all_configs && !(config == best)) continue;
      prepare_sampling(desc, config);
      for (const Mode& mode : modes()) {
        params.set(std::vector<SamplerParams>(static_cast<size_t>(rows), mode.params));
        SampleCall call{.desc = desc,
                        .logits_stride = vocab,
                        .rows = live.data(),
                        .params = params.data(),
                        .states = states.data(),
                        .counts = counts.data(),
                        .step = step.data(),
                        .token_ids = ids.data(),
                        .workspace = workspace.data()};
        ring.attach(call);
        int at = 0;
        const auto time = [&](int num) {
          return call_us(32, [&](LaunchContext context) {
            call.logits = logits.data() + one * static_cast<size_t>(at++ % num);
            sample(call, config, context);
          });
        };
        const double us = time(1);
        const double cold = time(copies);
        const double rate = 4e-3 * static_cast<double>(one) / us;
        std::printf("| %d | %d | %s | %s%s | %.2f | %.2f | %.0f |\n", vocab, rows, mode.name,
                    to_string(config).c_str(), config == best ? " (chosen)" : "", us, cold, rate);
        results.push_back({{"what", "sample"},
                           {"vocab", vocab},
                           {"rows", rows},
                           {"sampling", mode.name},
                           {"config", to_string(config)},
                           {"chosen", config == best},
                           {"us", us},
                           {"gb_per_s", rate}});
      }
    }
  }
}

void bench_advance(Json& results) {
  for (const int rows : {1, 32, 256}) {
    const auto n = static_cast<size_t>(rows);
    Device<int32_t> ids(n), positions(n), kv_len(n), slots(n), table(n * 1024);
    Device<uint32_t> overrun(n);
    Device<uint64_t> step(1);
    Device<int64_t> live(1);
    live.set({rows});
    const AdvanceParams p{.sampled = ids.data(),
                          .token_ids = ids.data(),
                          .positions = positions.data(),
                          .kv_len = kv_len.data(),
                          .slots = slots.data(),
                          .page_table = table.data(),
                          .page_table_stride = 1024,
                          .page_size = 64,
                          .overrun = overrun.data(),
                          .step = step.data(),
                          .rows = live.data(),
                          .capacity = rows};
    const double us = call_us(64, [&](LaunchContext context) { advance(p, context); });
    std::printf("| - | %d | advance | - | %.2f | - | - |\n", rows, us);
    results.push_back({{"what", "advance"}, {"rows", rows}, {"us", us}});
  }
}

void bench_fill(Json& results) {
  const int64_t n = int64_t{1} << 29;
  Device<uint16_t> memory(static_cast<size_t>(n));
  TensorView view =
      make_view(reinterpret_cast<std::byte*>(memory.data()), DType::bf16, {n / 4096, 4096});
  const double us = call_us(2, [&](LaunchContext context) {
    random_fill({.out = view, .index_stride = 4096, .seed = 3, .stddev = 0.02f}, context);
  });
  std::printf("\nrandom bf16 weights, 1 GiB: %.0f us, %.0f GB/s written\n", us,
              2e-3 * static_cast<double>(n) / us);
  results.push_back({{"what", "random_fill"}, {"us", us}});
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void bench_upload(Json& results) {
  const int64_t bytes = int64_t{2} << 30;
  Device<std::byte> target(static_cast<size_t>(bytes));
  std::byte* pinned = nullptr;
  check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&pinned), static_cast<size_t>(bytes) / 4,
                           cudaHostAllocPortable),
             "pinned");
  std::memset(pinned, 1, static_cast<size_t>(bytes) / 4);
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    times.push_back(seconds([&] {
      check_cuda(
          cudaMemcpy(target.data(), pinned, static_cast<size_t>(bytes) / 4, cudaMemcpyHostToDevice),
          "copy");
    }));
  }
  const double plain = 1e-9 * static_cast<double>(bytes) / 4 / median(times);
  cudaFreeHost(pinned);
  std::printf("\n| upload of %.1f GB | GB/s | of a pinned copy |\n|---|---|---|\n",
              1e-9 * static_cast<double>(bytes));
  std::printf("| one pinned copy | %.1f | 1.00 |\n", plain);
  const std::vector<std::byte> source(static_cast<size_t>(bytes), std::byte{3});
  TensorView view =
      make_view(const_cast<std::byte*>(source.data()), DType::bf16, {bytes / 2 / 4096, 4096});
  const auto report = [&](const std::string& name, const UploadConfig& config) {
    Uploader uploader(0, config);
    times.clear();
    double first = 0;
    for (int i = 0; i < 4; ++i) {
      const double t = seconds([&] {
        uploader.copy(target.data(), view);
        uploader.finish();
      });
      i == 0 ? void(first = t) : times.push_back(t);
    }
    const double rate = 1e-9 * static_cast<double>(view.bytes()) / median(times);
    std::printf("| %s | %.1f (first, with pinning: %.1f) | %.2f |\n", name.c_str(), rate,
                1e-9 * static_cast<double>(view.bytes()) / first, rate / plain);
    results.push_back(
        {{"what", "upload"}, {"config", name}, {"gb_per_s", rate}, {"pinned_gb_per_s", plain}});
  };
  for (const int threads : {1, 2, 4, 8, 16}) {
    report(fmt::format("{} threads, 4 MB pieces", threads), {.threads = threads});
  }
  report("8 threads, 1 MB pieces", {.threads = 8, .piece_bytes = 1 << 20});
  report("8 threads, 16 MB pieces", {.threads = 8, .piece_bytes = 16 << 20});
  view = slice_cols(view, 0, 2048);
  report("8 threads, half of each 8 KB row", {.threads = 8});
}

int run(int argc, char** argv) {
  const char* json_path = nullptr;
  bool all_configs = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else if (std::strcmp(argv[i], "--all-configs") == 0) {
      all_configs = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE] [--all-configs]\n", argv[0]);
      return 2;
    }
  }
  Json results = Json::array();
  bench_sampling(results, all_configs);
  bench_advance(results);
  bench_fill(results);
  bench_upload(results);
  if (json_path != nullptr) write_results(json_path, results.dump(1));
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  return braid::cuda::gpu_main("bench_cuda_sampling", [&] { return braid::cuda::run(argc, argv); });
}
