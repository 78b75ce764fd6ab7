// Times decoders on a single rank and over ranks.
#include <algorithm>
#include <chrono>

#include "braid/step_bench.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

template <class F>
double ms_of(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  return passed.count();
}

template <class F>
double median_ms(int repetitions, F&& work) {
  std::vector<double> ms;
  for (int n = 0; n < repetitions; ++n) ms.push_back(ms_of(work));
  std::ranges::sort(ms);
  return ms[ms.size() / 2];
}

}  // namespace

void print_decodes(const std::vector<std::string>& sizes, const StepBenchOptions& options,
                   const BenchPlace& place, const RandomWeights* random, const MakeDecoder& make) {
  print(
      "\n| size | ranks | first decode ms | decode ms | times one rank | values GB |\n"
      "|---|---|---:|---:|---:|---:|\n");
  std::vector<double> alone;  // ms by size
  std::string launches;
  for (int ranks : place.ranks() > 1 ? std::vector{1, place.ranks()} : std::vector{1}) {
    NetworkConfig network = ranks > 1 ? place.all(random) : place.one(random);
    if (ranks > 1) {
      network.schedule = "sequential";
      network.mesh = sequence_mesh(SpMode::ring, place.topology(), ranks);
    }
    const auto decoder = make(network);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto decode = [&] { decoder->decode(i); };
      const double first = ms_of(decode);
      decode();  // captures
      const double median = median_ms(options.repetitions, decode);
      if (ranks == 1) alone.push_back(median);
      BoundNetwork& bound = decoder->bound(i);
      const int64_t arena = bound.executor(0).schedule().memory.arena_bytes;
      print(fmt::format("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", sizes[i], ranks, first,
                        median, alone[i] / median, static_cast<double>(arena) * 1e-9));
      if (!options.launches) continue;
      const double run = median_ms(options.repetitions, [&] { bound.run(); });
      launches += fmt::format("{}, {} ranks: {:.2f} ms without latents and pixels; rank 0:\n{}",
                              sizes[i], ranks, run, kinds_of(bound));
    }
  }
  print(launches);
}

}  // namespace braid::app
