// What communication fused with computation gains over emulated links: each fused op beside the ops
// that it stands for, in alternation, medians over the repetitions. `hidden` is the share of the
// shorter of the two parts that the fused op hides. The emulation's own thread needs a core beside
// the ranks'; without one its copies are in the figures.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/barrier.h"
#include "braid/fabric/collectives/reduce_scatter.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/kernels/cpu/comm/linear_all_reduce.h"
#include "braid/kernels/cpu/comm/reduce_norm.h"
#include "braid/kernels/cpu/pointwise/norm.h"
#include "braid/tensor/quant.h"
#include "report.h"

namespace braid::cpu {
namespace {

using fabric::Comm;

constexpr int kRepetitions = 21;

// Median seconds of each function, from one barrier to the next, all run in turn.
std::vector<double> medians(Comm& comm, const std::vector<std::function<void()>>& functions) {
  std::vector<std::vector<double>> seconds(functions.size());
  for (int i = 0; i < kRepetitions; ++i) {
    for (size_t f = 0; f < functions.size(); ++f) {
      fabric::barrier(comm);
      const auto start = std::chrono::steady_clock::now();
      functions[f]();
      fabric::barrier(comm);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds[f].push_back(took.count());
    }
  }
  std::vector<double> result;
  for (auto& all : seconds) {
    std::ranges::nth_element(all, all.begin() + kRepetitions / 2);
    result.push_back(all[kRepetitions / 2]);
  }
  return result;
}

// Two ranks of one thread over a link of `range` MB/s + 20 us; run(comm) gives medians, of which
// rank 0's are reported under `names`.
template <class Run>
void measure(benchmark::State& state, int64_t megabytes, const std::vector<const char*>& names,
             Run&& run) {
  fabric::LocalFabricConfig config{.ranks = 2};
  config.links.machine_link = Link{static_cast<double>(megabytes) * 1e6, 20e-6};
  std::vector<double> seconds;
  for (auto _ : state) {
    fabric::run_ranks(config, [&](fabric::Endpoint& endpoint) {
      Comm comm(endpoint, fabric::Group::world(2), {.name = "tp"});
      const std::vector<double> mine = run(comm);
      if (endpoint.rank() == 0) seconds = mine;
    });
  }
  for (size_t i = 0; i < names.size(); ++i) state.counters[names[i]] = 1e6 * seconds[i];
  const size_t n = names.size();  // ..., parts one after the other, fused
  state.counters["hidden"] = (seconds[n - 2] - seconds[n - 1]) / std::min(seconds[0], seconds[1]);
}

// y [M, N] = all_reduce(x W^T), W in q4_1. Arguments: M, K, N, MB/s.
void BM_linear_all_reduce(benchmark::State& state) {
  const int64_t M = state.range(0), K = state.range(1), N = state.range(2);
  measure(state, state.range(3), {"linear_us", "all_reduce_us", "apart_us", "fused_us"},
          [&](Comm& comm) {
            const LinearIsa isa = best_linear_isa();
            const int64_t row_bytes = bytes_of(DType::q4_1, K);
            std::vector<std::byte> w(static_cast<size_t>(N * row_bytes));
            std::vector<float> row(static_cast<size_t>(K)), x(static_cast<size_t>(M * K), 0.5f);
            std::vector<float> y(static_cast<size_t>(M * N));
            for (int64_t k = 0; k < K; ++k)
              row[static_cast<size_t>(k)] = 0.1f * static_cast<float>(k % 17);
            for (int64_t i = 0; i < N; ++i) {
              quantize_row(DType::q4_1, row.data(), w.data() + i * row_bytes, K);
            }
            const int64_t bytes = linear_all_reduce_scratch_bytes(M, N, K, DType::q4_1, 1, isa);
            std::vector<std::byte> memory(static_cast<size_t>(bytes + 64));
            std::byte* scratch = memory.data();
            while (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++scratch;
            const TensorView weight = make_view(w.data(), DType::q4_1, {N, K});
            const LinearDesc::Weight kind = {DType::q4_1, N};
            const LinearConfig config =
                choose_linear({.M = M, .K = K, .weights = {&kind, 1}, .threads = 1}, isa);
            const LinearWeight out = {.w = weight, .y = y.data(), .ldy = N};
            const std::function<void()> multiply = [&] {
              linear({.x = x.data(), .ldx = K, .M = M, .K = K, .weights = {&out, 1}}, config,
                     scratch, {});
            };
            const std::function<void()> reduce = [&] {
              fabric::all_reduce(comm, {}, y.data(), y.data(), M * N);
            };
            const auto tiles = choose_linear_all_reduce({.M = M,
                                                         .N = N,
                                                         .ranks = comm.size(),
                                                         .link = comm.slowest(),
                                                         .slot_bytes = comm.slot_bytes()});
            if (comm.index() == 0) state.SetLabel(to_string(tiles));
            const LinearAllReduceParams params = {
                .x = x.data(), .M = M, .K = K, .w = weight, .y = y.data()};
            return medians(comm,
                           {multiply, reduce, [&] { multiply(), reduce(); },
                            [&] { linear_all_reduce(comm, {}, params, tiles, isa, scratch); }});
          });
}

// The residual divided over tokens. Arguments: T, C, MB/s.
void BM_reduce_scatter_add_rms_norm_all_gather(benchmark::State& state) {
  const int64_t T = state.range(0), C = state.range(1);
  measure(state, state.range(2), {"norm_us", "wire_us", "apart_us", "fused_us"}, [&](Comm& comm) {
    const auto elems = static_cast<size_t>(T * C);
    std::vector<float> x(elems, 1), r(elems, 0.5f), z(elems), s(elems), y(elems);
    std::vector<float> w(static_cast<size_t>(C), 1);
    std::vector<int64_t> counts, bytes;
    for (int p = 0; p < comm.size(); ++p) {
      counts.push_back(even_part(T, comm.size(), p).size() * C);
      bytes.push_back(counts.back() * static_cast<int64_t>(sizeof(float)));
    }
    const int64_t rows = counts[static_cast<size_t>(comm.index())] / C;
    const std::function<void()> norm = [&] {
      add_rms_norm({.x = z.data(),
                    .r = r.data(),
                    .w = w.data(),
                    .s = s.data(),
                    .y = z.data(),
                    .rows = rows,
                    .cols = C,
                    .x_stride = C,
                    .r_stride = C,
                    .s_stride = C,
                    .y_stride = C,
                    .eps = 1e-5f},
                   {});
    };
    const auto scatter = [&] { fabric::reduce_scatter(comm, {}, x.data(), z.data(), counts); };
    const auto gather = [&] { fabric::all_gather(comm, {}, z.data(), y.data(), bytes); };
    const ReduceNormConfig config = choose_reduce_norm({.rows = T,
                                                        .cols = C,
                                                        .ranks = comm.size(),
                                                        .link = comm.slowest(),
                                                        .slot_bytes = comm.slot_bytes(),
                                                        .lanes = 1,
                                                        .divided = true});
    if (comm.index() == 0) state.SetLabel(to_string(config));
    const ReduceNormParams params = {.x = x.data(),
                                     .r = r.data(),
                                     .w = w.data(),
                                     .s = s.data(),
                                     .y = y.data(),
                                     .rows = T,
                                     .cols = C,
                                     .eps = 1e-5f};
    return medians(comm,
                   {norm, [&] { scatter(), gather(); }, [&] { scatter(), norm(), gather(); },
                    [&] { reduce_scatter_add_rms_norm_all_gather(comm, {}, params, config); }});
  });
}

BENCHMARK(BM_linear_all_reduce)
    ->Iterations(1)
    ->Args({512, 1024, 2048, 250})
    ->Args({512, 1024, 2048, 1000})
    ->Args({64, 1024, 2048, 250})
    ->Args({1, 4096, 4096, 20});
BENCHMARK(BM_reduce_scatter_add_rms_norm_all_gather)
    ->Iterations(1)
    ->Args({1, 2048, 500})
    ->Args({256, 2048, 500})
    ->Args({1024, 2048, 2000});

}  // namespace
}  // namespace braid::cpu

int main(int argc, char** argv) {
  return braid::run_benchmarks(argc, argv);
}
