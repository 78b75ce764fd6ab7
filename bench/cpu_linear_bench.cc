// Linear layers on the CPU against what the machine can do.
//
//   read_bandwidth   bytes per second that the team reads from memory, past every cache
//   decode/<dtype>   one token through the linear layers of a SmolLM2-135M, weights in memory
//   order:
//                    bytes per second, and their share of the bandwidth read in the same run
//   dot_ceiling      the 8-bit products of one core when nothing but they run (AVX-512 VNNI)
//   prefill/<dtype>  512 tokens through the same layers
//   gemm/<dtype>     M x 576 x 1536 on one core, with its share of the ceiling where one was
//   measured
//
// Threads: --threads=N before Google Benchmark's own flags (default: the usable cores).

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/error.h"
#include "braid/kernels/cpu/linear/linear.h"
#include "report.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braid::cpu {
namespace {

double read_bandwidth = 0;  // bytes per second, set by BM_ReadBandwidth
double dot_ceiling = 0;     // products per second and core, set by BM_DotCeiling

struct Mapped {
  explicit Mapped(int64_t n) : size(n) {
    data = static_cast<std::byte*>(mmap(nullptr, n, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    BRAID_CHECK(data != MAP_FAILED);
    std::mt19937_64 rng(1);
    for (int64_t i = 0; i + 8 <= n; i += 8) {
      const uint64_t bits = rng();
      std::memcpy(data + i, &bits, 8);
    }
  }
  ~Mapped() { munmap(data, size); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::byte* data;
  int64_t size;
};

// Factors of blocks that would be NaN or huge as random bits: 1/256.
void tame(DType dtype, std::byte* p, int64_t bytes) {
  if (!is_quantized(dtype)) {
    const int elem = info(dtype).block_bytes;
    for (int64_t i = elem - 1; i < bytes; i += elem) p[i] &= std::byte{0xbb};
    return;
  }
  const f16 small = {0x1c00};
  const bool pair =
      dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k || dtype == DType::q5_k;
  for (int64_t i = 0; i < bytes; i += info(dtype).block_bytes) {
    const int64_t at = i + (dtype == DType::q6_k ? 208 : 0);
    std::memcpy(p + at, &small, 2);
    if (pair) std::memcpy(p + at + 2, &small, 2);
  }
}

struct Layer {
  int64_t K;
  std::vector<int64_t> N;
  Gate gate;
};

// The linear layers of SmolLM2-135M in the order in which a token meets them; the head is q8_0 in
// the model file that is q4_1 elsewhere, and of the dtype itself here where the body is not q4_1.
class Model {
 public:
  explicit Model(DType dtype) {
    // The width, 576, holds no whole number of 256-element blocks: 512 for the K formats.
    const int64_t C = info(dtype).block_elems == 256 ? 512 : 576;
    const std::vector<Layer> block = {{C, {C, C / 3 / 32 * 32, C / 3 / 32 * 32}, Gate::none},
                                      {C, {C}, Gate::none},
                                      {C, {1536, 1536}, Gate::silu},
                                      {1536, {C}, Gate::none}};
    for (int i = 0; i < 30; ++i) layers_.insert(layers_.end(), block.begin(), block.end());
    layers_.push_back({C, {49152}, Gate::none});
    const DType head = dtype == DType::q4_1 ? DType::q8_0 : dtype;
    const auto dtype_of = [&](size_t i) { return i + 1 == layers_.size() ? head : dtype; };
    for (size_t i = 0; i < layers_.size(); ++i) {
      for (int64_t N : layers_[i].N)
        bytes_ += round_up(N * bytes_of(dtype_of(i), layers_[i].K), 32);
    }
    mapped_ = std::make_unique<Mapped>(bytes_);
    int64_t offset = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      views_.emplace_back();
      for (int64_t N : layer.N) {
        views_.back().push_back(make_view(mapped_->data + offset, dtype_of(i), {N, layer.K}));
        tame(dtype_of(i), mapped_->data + offset, views_.back().back().bytes());
        offset += round_up(views_.back().back().bytes(), 32);
      }
    }
  }

  int64_t bytes() const { return bytes_; }
  int64_t products(int64_t M, bool head) const {
    int64_t sum = 0;
    for (size_t i = 0; i + (head ? 0 : 1) < layers_.size(); ++i) {
      for (int64_t N : layers_[i].N) sum += M * N * layers_[i].K;
    }
    return sum;
  }

  // What one step of M tokens needs, made once; run() then allocates nothing.
  struct Step {
    std::vector<LinearParams> params;
    std::vector<LinearConfig> configs;
    std::vector<std::vector<LinearWeight>> weights;
    std::vector<float> x, y;
    std::vector<std::byte> scratch;
  };
  Step prepare(int64_t M, int threads, LinearIsa isa, bool head) const {
    Step step;
    step.x.resize(M * 1536);
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    for (float& v : step.x) v = normal(rng);
    step.y.resize(M * (head ? 49152 : 3072));
    int64_t scratch = 0;
    step.weights.resize(layers_.size());
    for (size_t i = 0; i + (head ? 0 : 1) < layers_.size(); ++i) {
      std::vector<LinearDesc::Weight> shapes;
      int64_t column = 0;
      for (const TensorView& w : views_[i]) {
        step.weights[i].push_back({.w = w, .y = step.y.data() + M * column, .ldy = w.rows()});
        shapes.push_back({w.dtype, w.rows()});
        column += w.rows();
      }
      const Layer& layer = layers_[i];
      const LinearDesc desc{M, layer.K, shapes, layer.gate, threads};
      scratch = std::max(scratch, linear_scratch_bytes(desc, isa));
      step.configs.push_back(choose_linear(desc, isa));
      step.params.push_back({.x = step.x.data(),
                             .ldx = layer.K,
                             .M = M,
                             .K = layer.K,
                             .weights = step.weights[i],
                             .gate = layer.gate});
    }
    step.scratch.resize(scratch + 64);
    return step;
  }

 private:
  std::vector<Layer> layers_;
  std::vector<std::vector<TensorView>> views_;
  std::unique_ptr<Mapped> mapped_;
  int64_t bytes_ = 0;
};

void run(const Model::Step& step, ThreadPool& pool) {
  std::byte* scratch = const_cast<std::byte*>(step.scratch.data());
  scratch += -reinterpret_cast<uintptr_t>(scratch) & 63;
  pool.run([&](const Team& team) {
    for (size_t i = 0; i < step.params.size(); ++i) {
      linear(step.params[i], step.configs[i], scratch, team);
      team.barrier();
    }
  });
}

using Clock = std::chrono::steady_clock;
double median_seconds(benchmark::State& state, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    state.SetIterationTime(seconds.back());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

#if defined(__x86_64__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
int64_t
sum_words(const std::byte* p, int64_t bytes) {
  typedef int64_t Words __attribute__((vector_size(64)));
  Words sum[4] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      Words w;
      std::memcpy(&w, p + i + 64 * j, 64);
      sum[j] += w;
    }
  }
  const Words all = sum[0] + sum[1] + sum[2] + sum[3];
  int64_t total = 0;
  for (int i = 0; i < 8; ++i) total += all[i];
  return total;
}

void BM_ReadBandwidth(benchmark::State& state, int threads) {
  ThreadPool pool(threads);
  const Mapped memory(int64_t{192} << 20);
  const double seconds = median_seconds(state, [&] {
    pool.run([&](const Team& team) {
      const Range mine = team.share(memory.size / 4096);
      benchmark::DoNotOptimize(sum_words(memory.data + mine.begin * 4096, mine.size() * 4096));
    });
  });
  read_bandwidth = static_cast<double>(memory.size) / seconds;
  state.counters["GB/s"] = read_bandwidth * 1e-9;
}

void BM_Decode(benchmark::State& state, DType dtype, int threads, int64_t M) {
  ThreadPool pool(threads);
  const Model model(dtype);
  const Model::Step step = model.prepare(M, threads, best_linear_isa(), true);
  run(step, pool);
  const double seconds = median_seconds(state, [&] { run(step, pool); });
  const double bandwidth = static_cast<double>(model.bytes()) / seconds;
  state.counters["GB/s"] = bandwidth * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(M) / seconds;
  if (read_bandwidth > 0) state.counters["of_bandwidth"] = bandwidth / read_bandwidth;
}

void BM_Prefill(benchmark::State& state, DType dtype, int threads, int64_t M) {
  ThreadPool pool(threads);
  const Model model(dtype);
  const Model::Step step = model.prepare(M, threads, best_linear_isa(), false);
  run(step, pool);
  const double seconds = median_seconds(state, [&] { run(step, pool); });
  const double rate = static_cast<double>(model.products(M, false)) / seconds;
  state.counters["GMAC/s"] = rate * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(M) / seconds;
  if (dot_ceiling > 0) state.counters["of_ceiling"] = rate / (dot_ceiling * threads);
}

void BM_Gemm(benchmark::State& state, DType dtype, LinearIsa isa) {
  const int64_t M = state.range(0), N = 576, K = 1536;
  const Mapped w(N * bytes_of(dtype, K));
  tame(dtype, w.data, w.size);
  std::vector<float> x(M * K, 0.5f), y(M * N);
  const LinearWeight weight{.w = make_view(w.data, dtype, {N, K}), .y = y.data(), .ldy = N};
  const LinearParams params{.x = x.data(), .ldx = K, .M = M, .K = K, .weights = {&weight, 1}};
  const LinearDesc::Weight shape{dtype, N};
  const LinearDesc desc{M, K, {&shape, 1}, Gate::none, 1};
  std::vector<std::byte> scratch(linear_scratch_bytes(desc, isa) + 64);
  std::byte* aligned = scratch.data() + (-reinterpret_cast<uintptr_t>(scratch.data()) & 63);
  const LinearConfig config = choose_linear(desc, isa);
  const double seconds = median_seconds(state, [&] { linear(params, config, aligned, Team{}); });
  const double rate = static_cast<double>(M * N * K) / seconds;
  state.counters["GMAC/s"] = rate * 1e-9;
  if (dot_ceiling > 0) state.counters["of_ceiling"] = rate / dot_ceiling;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) void spin_dots(int64_t rounds) {
  __m512i sum[12];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512i& s : sum) {
      s = _mm512_dpbusd_epi32(s, a, b);
    }
  }
  for (__m512i& s : sum) benchmark::DoNotOptimize(s);
}

void BM_DotCeiling(benchmark::State& state) {
  constexpr int64_t kRounds = 100000;
  const double seconds = median_seconds(state, [] { spin_dots(kRounds); });
  dot_ceiling = static_cast<double>(kRounds * 12 * 64) / seconds;
  state.counters["GMAC/s"] = dot_ceiling * 1e-9;
}
#endif

void register_all(int threads) {
  const auto add = [](const std::string& title, auto fn) {
    return benchmark::RegisterBenchmark(title.c_str(), fn)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("read_bandwidth", [=](benchmark::State& s) { BM_ReadBandwidth(s, threads); });
#if defined(__x86_64__)
  if (best_linear_isa() == LinearIsa::avx512_vnni) add("dot_ceiling", BM_DotCeiling);
#endif
  const DType dtypes[] = {DType::q4_1, DType::q8_0, DType::q4_0, DType::q5_0,
                          DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k,
                          DType::f16,  DType::bf16, DType::f32};
  for (DType dtype : dtypes) {
    const std::string title(name(dtype));
    add("decode/" + title, [=](benchmark::State& s) { BM_Decode(s, dtype, threads, 1); });
    add("decode8/" + title, [=](benchmark::State& s) { BM_Decode(s, dtype, threads, 8); });
    add("prefill/" + title, [=](benchmark::State& s) { BM_Prefill(s, dtype, threads, 512); });
    for (LinearIsa isa : usable_linear_isas()) {
      add("gemm/" + title + "/" + std::string(name(isa)),
          [=](benchmark::State& s) { BM_Gemm(s, dtype, isa); })
          ->Arg(1)
          ->Arg(8)
          ->Arg(16)
          ->Arg(64)
          ->Arg(512);
    }
  }
}

}  // namespace
}  // namespace braid::cpu

int main(int argc, char** argv) {
  int threads = braid::cpu::usable_cores();
  if (argc > 1 && std::string_view(argv[1]).starts_with("--threads=")) {
    threads = std::clamp(std::atoi(argv[1] + 10), 1, braid::cpu::ThreadPool::kMaxThreads);
    std::rotate(argv + 1, argv + 2, argv + argc);
    --argc;
  }
  braid::cpu::register_all(threads);
  return braid::run_benchmarks(argc, argv);
}
