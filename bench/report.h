#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace braid {

// The library's table below a first line of Braid's. The library's own first lines warn wherever
// the library has assertions, as Debian's has; the loop that is timed is compiled with the
// benchmark, not with the library.
class TableReporter : public benchmark::ConsoleReporter {
 public:
  TableReporter() : ConsoleReporter(isatty(STDOUT_FILENO) ? OO_Color : OO_None) {}

  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width;
    const auto& cpu = context.cpu_info;
    std::fprintf(stderr, "%d CPUs of %.0f MHz", cpu.num_cpus, cpu.cycles_per_second / 1e6);
    if (!cpu.load_avg.empty()) std::fprintf(stderr, ", load %.1f", cpu.load_avg[0]);
    std::fprintf(stderr, "\n");
    return true;
  }
};

// Runs what is registered, for the options of the library and no others; the exit status.
inline int run_benchmarks(int argc, char** argv) {
  bool table = true;  // unless --benchmark_format wants another form
  for (int i = 1; i < argc; ++i)
    table &= !std::string_view(argv[i]).starts_with("--benchmark_format");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  TableReporter reporter;
  benchmark::RunSpecifiedBenchmarks(table ? &reporter : nullptr);
  return 0;
}

}  // namespace braid
