// Paged decode attention as it runs in a step: a captured chain of layers, each with its own cache,
// so that no layer finds its keys in L2. Microseconds a layer, and key and value bytes over time
// against a read-only stream measured beside it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/backend/cuda/read_stream.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "gpu_main.h"
#include "graph_time.h"

using namespace braid;
using namespace braid::cuda;

namespace {

struct BenchShape {
  const char* model;
  int q_heads, kv_heads, head_dim, batch, context;
};

constexpr BenchShape kShapes[] = {
    {"llama-2-7b", 32, 32, 128, 1, 1024},    {"llama-2-7b", 32, 32, 128, 1, 4096},
    {"llama-2-7b", 32, 32, 128, 1, 16384},   {"llama-2-7b", 32, 32, 128, 16, 1024},
    {"llama-2-7b", 32, 32, 128, 16, 4096},   {"llama-2-7b", 32, 32, 128, 32, 1024},
    {"llama-2-7b", 32, 32, 128, 32, 4096},   {"llama-2-7b", 32, 32, 128, 64, 1024},
    {"llama-3-8b", 32, 8, 128, 64, 1024},    {"llama-3-8b", 32, 8, 128, 1, 1024},
    {"llama-3-8b", 32, 8, 128, 1, 4096},     {"llama-3-8b", 32, 8, 128, 1, 16384},
    {"llama-3-8b", 32, 8, 128, 16, 4096},    {"llama-3-8b", 32, 8, 128, 32, 4096},
    {"llama-3.3-70b", 64, 8, 128, 1, 1024},  {"llama-3.3-70b", 64, 8, 128, 1, 16384},
    {"llama-3.3-70b", 64, 8, 128, 16, 4096}, {"70b, tp 8", 8, 1, 128, 1, 16384},
    {"smollm2-135m", 9, 3, 64, 1, 1024},     {"head dim 256", 16, 16, 256, 1, 4096},
};

template <class T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(size_t n) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(T)), "bench memory");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    check_cuda(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
               "bench memory");
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
};

// bf16 of about N(0, 1) / 2: sums of four uniform bytes.
__global__ void fill_random(uint32_t* out, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t packed = 0;
    for (int half = 0; half < 2; ++half) {
      uint32_t x = static_cast<uint32_t>(2 * i + half) * 2654435761u;
      x = (x ^ (x >> 15)) * 2246822519u;
      x = (x ^ (x >> 13)) * 3266489917u;
      x ^= x >> 16;
      const int sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
      packed |= (__float_as_uint((sum - 510) / 296.f) >> 16) << (16 * half);
    }
    out[i] = packed;
  }
}

// Stands for what a layer does between attentions: lets the next one start, waits, writes little.
__global__ void small_kernel(uint32_t* out) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  out[blockIdx.x] = blockIdx.x;
}

double replay_seconds(const std::function<void(cudaStream_t)>& enqueue, double budget) {
  return 1e-6 * graph_us(enqueue, 38, budget);
}

struct Options {
  bool all = false;     // every candidate
  bool states = false;  // of queries over a rank's keys, in place of decode attention
  int page = 64;
  double budget = .03;  // seconds a measurement
  std::string json;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), arena_bytes_(int64_t{6} << 30), arena_(arena_bytes_ / 4), sink_(4096) {
    fill_random<<<1056, 256>>>(arena_.data, arena_bytes_ / 4);
    check_cuda(cudaDeviceSynchronize(), "fill");
  }

  double stream_rate() {
    const int64_t bytes = int64_t{4} << 30;
    const double s = replay_seconds(
        [&](cudaStream_t stream) { read_stream(arena_.data, bytes, sink_.data, 264, {stream}); },
        .05);
    return bytes / s;
  }

  void run(const BenchShape& s, double stream_rate) {
    DecodeDesc d;
    d.attrs.head_dim = s.head_dim;
    d.attrs.group = s.q_heads / s.kv_heads;
    d.attrs.scale = 1.f / std::sqrt(static_cast<float>(s.head_dim));
    d.num_q_heads = s.q_heads;
    d.num_kv_heads = s.kv_heads;
    d.page_size = options_.page;
    d.table_stride = (s.context + d.page_size - 1) / d.page_size;
    d.max_sequences = d.max_tokens = s.batch;
    const int64_t row = int64_t{s.kv_heads} * s.head_dim * 2;  // bytes of a token's K
    const int64_t cache = int64_t{s.batch} * d.table_stride * d.page_size * row;
    const int64_t bytes = 2 * int64_t{s.batch} * s.context * row;
    const int layers = static_cast<int>(std::clamp<int64_t>(arena_bytes_ / (2 * cache), 1, 32));

    std::vector<int32_t> q_start, kv_len, table;
    for (int i = 0; i <= s.batch; ++i) q_start.push_back(i);
    for (int i = 0; i < s.batch; ++i) kv_len.push_back(s.context);
    // Pages in an order that a server's allocator leaves behind.
    const int pages = s.batch * d.table_stride;
    for (int i = 0; i < pages; ++i) table.push_back(static_cast<int32_t>(i * 7919LL % pages));
    if (pages % 7919 == 0) std::fprintf(stderr, "pages repeat\n");
    DeviceArray<int32_t> d_start(q_start), d_len(kv_len), d_table(table);
    DeviceArray<uint16_t> q(size_t(s.batch) * s.q_heads * s.head_dim);
    DeviceArray<uint16_t> out(size_t(s.batch) * s.q_heads * s.head_dim);
    fill_random<<<32, 256>>>(reinterpret_cast<uint32_t*>(q.data),
                             int64_t{s.batch} * s.q_heads * s.head_dim / 2);

    std::vector<DecodeConfig> configs = {choose(d, decode_device())};
    if (options_.all) configs = candidates(d, decode_device());
    for (const DecodeConfig& config : configs) {
      prepare_decode_attention(d, config);
      DeviceArray<uint8_t> workspace(config.workspace_bytes);
      check_cuda(cudaMemset(workspace.data, 0, config.workspace_bytes), "workspace");
      const auto chain = [&](bool pdl, bool history, int between) {
        return replay_seconds(
                   [&](cudaStream_t stream) {
                     for (int layer = 0; layer < layers; ++layer) {
                       DecodeParams p;
                       p.q = q.data;
                       p.k_cache = arena_.data + layer * cache / 2;
                       p.v_cache = arena_.data + layer * cache / 2 + cache / 4;
                       p.q_start = d_start.data;
                       p.kv_len = d_len.data;
                       p.page_table = d_table.data;
                       p.out = out.data;
                       p.workspace = workspace.data;
                       p.history_ready = history;
                       for (int i = 0; i < between; ++i) {
                         launch_kernel({stream, pdl}, small_kernel, 32, 128, 0, sink_.data);
                       }
                       decode_attention(d, p, config, {stream, pdl});
                     }
                   },
                   options_.budget) /
               layers;
      };
      // A small kernel before each, and its own time taken off: what an attention adds to a chain.
      const double small =
          replay_seconds(
              [&](cudaStream_t stream) {
                for (int i = 0; i < layers; ++i) {
                  launch_kernel({stream, true}, small_kernel, 32, 128, 0, sink_.data);
                }
              },
              .01) /
          layers;
      const double plain = chain(false, false, 0);
      const double pdl = chain(true, false, 1) - small;
      const double early = chain(true, true, 1) - small;
      const double best = std::min(pdl, early);
      const auto heads = std::to_string(s.q_heads) + "/" + std::to_string(s.kv_heads) + " x " +
                         std::to_string(s.head_dim);
      std::printf(
          "| %s | %s | %d | %d | %.1f | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f%% | %dx%d |\n",
          s.model, heads.c_str(), s.batch, s.context, bytes / 1e6, bytes / stream_rate * 1e6,
          plain * 1e6, pdl * 1e6, early * 1e6, bytes / best / 1e12,
          100 * bytes / best / stream_rate, config.ctas, config.warps);
      std::fflush(stdout);
      char line[512];
      std::snprintf(line, sizeof line,
                    "%s{\"model\": \"%s\", \"heads\": \"%s\", \"batch\": %d, \"context\": %d, "
                    "\"bytes\": %lld, \"plain_us\": %.3f, \"pdl_us\": %.3f, \"early_us\": %.3f, "
                    "\"stream_bytes_per_s\": %.4g, \"ctas\": %d, \"warps\": %d}",
                    json_.empty() ? "[\n" : ",\n", s.model, heads.c_str(), s.batch, s.context,
                    static_cast<long long>(bytes), plain * 1e6, pdl * 1e6, early * 1e6, stream_rate,
                    config.ctas, config.warps);
      json_ += line;
    }
  }

  // States of Llama-3-8B's queries in a step over `ranks` ranks: of a guest with 65,536 keys on
  // this rank and of absent guests, of eight own sequences with 1,056 keys each, apart and
  // together.
  void run_states(int ranks) {
    constexpr int64_t kGuest = 65536, kOwn = 8, kOwnKeys = 1056, kHeads = 32, kKvHeads = 8,
                      kD = 128;
    constexpr int64_t kKeys = kGuest + kOwn * kOwnKeys;
    std::vector<Range> guests(ranks), own(1), both;  // the first own row is a guest's place
    guests[0] = {0, kGuest};
    for (int64_t i = 0; i < kOwn; ++i) {
      own.push_back({kGuest + i * kOwnKeys, kGuest + (i + 1) * kOwnKeys});
    }
    both = guests;
    both.insert(both.end(), own.begin(), own.end());
    std::vector<int32_t> places(kKeys);
    for (int64_t i = 0; i < kKeys; ++i) places[i] = static_cast<int32_t>(i);
    const DeviceArray<int32_t> slots(places);
    const Shape cache{kKeys / 64, 64, kKvHeads, kD};
    const int64_t cache_bytes = bytes_of({DType::bf16, cache});
    const auto layers = static_cast<int>(arena_bytes_ / (2 * cache_bytes));
    const auto us = [&](const std::vector<std::vector<Range>>& calls) {
      struct Call {
        DeviceArray<int32_t> rows, begin, end;
        DeviceArray<uint16_t> q;
        DeviceArray<float> out;
        DecodeConfig config;
        std::unique_ptr<DeviceArray<uint8_t>> workspace;
        StateParams p;
      };
      std::vector<std::unique_ptr<Call>> made;
      for (const std::vector<Range>& keys : calls) {
        std::vector<int32_t> begin, end;
        for (const Range& of : keys) {
          begin.push_back(static_cast<int32_t>(of.begin));
          end.push_back(static_cast<int32_t>(of.end));
        }
        const auto T = static_cast<int64_t>(keys.size());
        const size_t rows = keys.size() * kHeads;
        made.push_back(std::unique_ptr<Call>(new Call{
            DeviceArray(std::vector<int32_t>(keys.size())), DeviceArray(begin), DeviceArray(end),
            DeviceArray<uint16_t>(rows * kD), DeviceArray<float>(rows * (kD + 2))}));
        Call& c = *made.back();
        fill_random<<<32, 256>>>(reinterpret_cast<uint32_t*>(c.q.data), rows * kD / 2);
        c.p.attrs.head_dim = kD;
        c.p.attrs.group = kHeads / kKvHeads;
        c.p.attrs.scale = 1.f / std::sqrt(static_cast<float>(kD));
        c.p.q = make_view(reinterpret_cast<std::byte*>(c.q.data), DType::bf16, {1, T, kHeads, kD});
        c.p.slots = make_view(reinterpret_cast<std::byte*>(slots.data), DType::i32, {1, kKeys});
        c.p.rows = c.rows.data, c.p.begin = c.begin.data, c.p.end = c.end.data;
        c.p.out = c.out.data;
        c.p.history_ready = true;
        const DecodeDesc d = state_desc(c.p.attrs, {DType::bf16, c.p.q.shape}, {DType::bf16, cache},
                                        {DType::i32, c.p.slots.shape});
        prepare_attention_states(d);
        c.config = choose(d, decode_device());
        c.workspace = std::make_unique<DeviceArray<uint8_t>>(c.config.workspace_bytes);
        check_cuda(cudaMemset(c.workspace->data, 0, c.config.workspace_bytes), "workspace");
        c.p.workspace = c.workspace->data;
      }
      return 1e6 / layers *
             replay_seconds(
                 [&](cudaStream_t stream) {
                   const LaunchContext context{stream, true};
                   for (int layer = 0; layer < layers; ++layer) {
                     auto* at = reinterpret_cast<std::byte*>(arena_.data) + 2 * layer * cache_bytes;
                     for (const auto& c : made) {
                       launch_kernel(context, small_kernel, 32, 128, 0, sink_.data);
                       c->p.k_cache = make_view(at, DType::bf16, cache);
                       c->p.v_cache = make_view(at + cache_bytes, DType::bf16, cache);
                       attention_states(c->p, c->config, context);
                     }
                   }
                 },
                 options_.budget);
    };
    std::printf("| %d | %.2f | %.2f | %.2f | %.2f |\n", ranks, us({guests}), us({own}),
                us({own, guests}), us({both}));
    std::fflush(stdout);
  }

  void save() const {
    if (options_.json.empty()) return;
    std::FILE* file = std::fopen(options_.json.c_str(), "w");
    if (file == nullptr) return;
    std::fputs((json_ + "\n]\n").c_str(), file);
    std::fclose(file);
  }

 private:
  Options options_;
  int64_t arena_bytes_;
  DeviceArray<uint32_t> arena_;
  DeviceArray<uint32_t> sink_;
  std::string json_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (arg == "--all") {
      options.all = true;
    } else if (arg == "--states") {
      options.states = true;
    } else if (arg == "--page") {
      options.page = std::atoi(value());
    } else if (arg == "--only") {
      only = value();  // model/batch/context
    } else if (arg == "--json") {
      options.json = value();
    } else {
      std::fprintf(stderr,
                   "bench_cuda_decode [--all] [--states] [--page N] [--only MODEL/BATCH/CONTEXT] "
                   "[--json FILE]\n");
      return 1;
    }
  }
  return gpu_main("bench_cuda_decode", [&] {
    Bench bench(options);
    if (options.states) {
      std::printf(
          "States, us with a small launch before each call\n\n"
          "| ranks | guest | own | own, then guest | both in a call |\n|---|---|---|---|---|\n");
      for (int ranks : {2, 4, 8}) bench.run_states(ranks);
      return 0;
    }
    const double rate = bench.stream_rate();
    std::printf(
        "Read-only stream %.2f TB/s; pages of %d; us a layer in a captured chain: plain "
        "launches, dependent launches, the same with early keys\n\n",
        rate / 1e12, options.page);
    std::printf(
        "| model | heads | batch | context | MB | floor us | plain | pdl | early | TB/s | of "
        "stream | config |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (const BenchShape& s : kShapes) {
      const std::string name =
          std::string(s.model) + "/" + std::to_string(s.batch) + "/" + std::to_string(s.context);
      if (name.find(only) != std::string::npos) bench.run(s, rate);
    }
    std::printf("\nRead-only stream again: %.2f TB/s\n", bench.stream_rate() / 1e12);
    bench.save();
    return 0;
  });
}
