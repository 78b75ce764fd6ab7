// Attention of a model with 9 heads, 3 KV heads, D 64, 30 layers, on a paged f16 cache.
//   decode   one token at a depth, through all layers: GB/s of K and V, beside the rate at which
//   the
//            same team can read memory at all
//   prefill  512 tokens at a depth: GFLOP/s
// Arguments: threads, depth, isa.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <random>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/kernels/cpu/attention/attention.h"
#include "report.h"

namespace braid::cpu {
namespace {

constexpr int64_t kLayers = 30;
constexpr int64_t kHeads = 9;
constexpr int64_t kKvHeads = 3;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kPageSize = 32;
constexpr int64_t kWidth = kHeads * kHeadDim;

struct Layers {
  std::vector<std::vector<uint16_t>> k, v;  // [layer][NB, BS, Hkv, D] f16
  std::vector<int32_t> page_table;
  std::vector<int32_t> q_start, kv_len;
  std::vector<float> q, out;  // [T, Hq * D]
  std::vector<std::byte> scratch;

  Layers(int64_t layers, int64_t tokens, int64_t keys, int threads)
      : page_table(ceil_div(keys, kPageSize)),
        q_start{0, static_cast<int32_t>(tokens)},
        kv_len{static_cast<int32_t>(keys)},
        q(tokens * kWidth),
        out(tokens * kWidth),
        scratch(attention_scratch_bytes(kHeads, kHeads / kKvHeads, kHeadDim, threads) + 64) {
    std::mt19937 random(1);
    std::iota(page_table.begin(), page_table.end(), 0);
    const size_t elems = page_table.size() * kPageSize * kKvHeads * kHeadDim;
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(random);
    for (int64_t i = 0; i < layers; ++i) {
      for (auto* cache : {&k, &v}) {
        cache->emplace_back(elems);
        for (uint16_t& x : cache->back()) {
          x = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);  // +-[0.5, 1)
        }
      }
    }
  }

  AttentionParams params(int64_t layer) {
    AttentionParams p;
    p.q = q.data();
    p.out = out.data();
    p.page_table = page_table.data();
    p.q_start = q_start.data();
    p.kv_len = kv_len.data();
    p.cache = {k[layer].data(), v[layer].data(), DType::f16, kPageSize, kKvHeads, kHeadDim};
    p.sequences = 1;
    p.max_pages = static_cast<int64_t>(page_table.size());
    p.q_heads = kHeads;
    p.group = kHeads / kKvHeads;
    p.q_stride = p.out_stride = kWidth;
    p.scale = 0.125f;
    p.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    return p;
  }
};

void decode(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int64_t depth = state.range(1);
  const Isa isa = static_cast<Isa>(state.range(2));
  Layers layers(kLayers, 1, depth, threads);
  ThreadPool pool(threads);
  for (auto _ : state) {
    pool.run([&](const Team& team) {
      for (int64_t i = 0; i < kLayers; ++i) {
        attention(layers.params(i), team, isa);
        team.barrier();
      }
    });
  }
  state.SetBytesProcessed(state.iterations() * kLayers * depth * kKvHeads * kHeadDim * 2 * 2);
}

// As many bytes as decode reads, added up in the simplest loop.
void read_memory(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int64_t words = kLayers * state.range(1) * kKvHeads * kHeadDim * 2 * 2 / 8;
  std::vector<int64_t> data(words, 1);
  std::vector<int64_t> sums(threads * 8);
  ThreadPool pool(threads);
  for (auto _ : state) {
    pool.run([&](const Team& team) {
      const Range mine = team.share(words);
      int64_t sum[8] = {};
      for (int64_t i = mine.begin; i + 8 <= mine.end; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += data[i + j];
      }
      for (int64_t s : sum) sums[team.index * 8] += s;
    });
  }
  benchmark::DoNotOptimize(sums.data());
  state.SetBytesProcessed(state.iterations() * words * 8);
}

void prefill(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int64_t depth = state.range(1);
  const Isa isa = static_cast<Isa>(state.range(2));
  constexpr int64_t kTokens = 512;
  Layers layers(1, kTokens, depth + kTokens, threads);
  ThreadPool pool(threads);
  for (auto _ : state) {
    pool.run([&](const Team& team) { attention(layers.params(0), team, isa); });
  }
  const double pairs =
      static_cast<double>(kTokens) * static_cast<double>(depth) + kTokens * (kTokens + 1) / 2.0;
  state.counters["GFLOP/s"] = benchmark::Counter(pairs * 4 * kHeadDim * kHeads * 1e-9,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  const auto best = static_cast<int64_t>(detected_isa());
  const int cores = usable_cores();
  std::vector<int> teams{1};
  if (cores > 1) teams.push_back(cores);
  for (int threads : teams) {
    for (int64_t depth : {128, 1024, 4096}) {
      benchmark::RegisterBenchmark("read_memory", read_memory)
          ->Args({threads, depth})
          ->UseRealTime();
      for (int64_t isa = 0; isa <= best; ++isa) {
        benchmark::RegisterBenchmark("decode", decode)->Args({threads, depth, isa})->UseRealTime();
      }
    }
    for (int64_t depth : {0, 3584}) {
      for (int64_t isa = 0; isa <= best; ++isa) {
        benchmark::RegisterBenchmark("prefill", prefill)
            ->Args({threads, depth, isa})
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu

int main(int argc, char** argv) {
  braid::cpu::register_all();
  return braid::run_benchmarks(argc, argv);
}
