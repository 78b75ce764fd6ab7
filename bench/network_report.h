#pragma once

// What benchmarks of networks on a GPU print: the time of each kind of kernel, the rate of a large
// product.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/engine/diffusion/network.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/kernels/cuda/linear/device/gemm.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"

namespace braid {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

inline double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

inline std::vector<float> normals(uint64_t seed, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  TorchGenerator(seed).normals(out);
  return out;
}

// TFLOP/s of a large product of random numbers.
inline double matrix_rate() {
  constexpr int64_t n = 8192;
  constexpr int kRuns = 20;
  cuda::CudaMemory x(0, 2 * n * n), w(0, 2 * n * n), y(0, 2 * n * n);
  for (cuda::CudaMemory* m : {&x, &w}) {
    cuda::random_fill({.out = make_view(m->data(), DType::bf16, {n, n}),
                       .index_stride = n,
                       .seed = m == &x ? 1u : 2u},
                      {});
  }
  cuda::Gemm gemm(cuda::CublasLt::load(), {.m = n, .n = n, .k = n});
  cuda::CudaMemory workspace(0, static_cast<int64_t>(gemm.workspace_bytes()) + 256);
  const cuda::GemmPointers p{
      .x = x.data(), .w = w.data(), .y = y.data(), .workspace = workspace.data()};
  gemm.prepare(p, nullptr, true);
  const auto start = Clock::now();
  for (int i = 0; i < kRuns; ++i) gemm.run({}, p);
  cuda::check_cuda(cudaDeviceSynchronize(), "bench");
  return 2e-9 * kRuns * static_cast<double>(n * n * n) / ms_since(start);
}

// Milliseconds and FLOP of each kind of kernel in a run, launch by launch.
inline void print_kinds(BoundNetwork& network) {
  struct Kind {
    double ms = 0, tflop = 0;
    int launches = 0;
  };
  std::map<std::string, Kind> kinds;
  network.run_timed();  // loads
  const std::vector<LaunchTime> times = network.run_timed();
  const Executor& executor = network.executor(0);
  const Program& program = executor.program();
  double all = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const Launch& launch = executor.schedule().launches[i];
    const Op& op = executor.schedule().op(program, launch);
    std::string shape;
    if (op.def->kind.starts_with("linear")) {
      shape = fmt::format(" {} x {}", to_string(program.value(op.inputs[0]).type.shape),
                          to_string(program.value(op.inputs[1]).type.shape));
    } else if (op.def->kind.starts_with("conv")) {
      shape = fmt::format(" {} by {}", to_string(program.value(op.outputs[0]).type.shape),
                          to_string(program.value(op.inputs[1]).type.shape));
    }
    Kind& kind = kinds[launch.kernel.name + shape];
    const double ms = (times[i].end - times[i].begin) * 1e3;
    kind.ms += ms;
    kind.launches += 1;
    const auto in = program.input_types(op, program.capacity);
    const auto out = program.output_types(op, program.capacity);
    kind.tflop += op.def->cost(op.attrs, in, out, {}).flops * 1e-12;
    all += ms;
  }
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  std::printf("| kernel | launches | ms | TFLOP/s |\n|---|---|---|---|\n");
  for (const auto& [name, kind] : sorted) {
    std::printf("| %s | %d | %.2f | %.0f |\n", name.c_str(), kind.launches, kind.ms,
                kind.tflop / kind.ms * 1e3);
  }
  std::printf("| all | %zu | %.2f | |\n\n", times.size(), all);
}

}  // namespace braid
