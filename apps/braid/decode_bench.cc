// Times decoders on a single rank and over ranks.
#include <algorithm>
#include <chrono>

#include "braid/step_bench.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

double ms_of(BenchedDecoder& decoder, size_t i) {
  const auto start = std::chrono::steady_clock::now();
  decoder.decode(i);
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  return passed.count();
}

}  // namespace

void print_decodes(const std::vector<std::string>& sizes, const StepBenchOptions& options,
                   const BenchPlace& place, const RandomWeights* random, const MakeDecoder& make) {
  print(
      "\n| size | ranks | first decode ms | decode ms | times one rank | values GB |\n"
      "|---|---|---:|---:|---:|---:|\n");
  std::vector<double> alone;  // ms by size
  for (int ranks : place.ranks() > 1 ? std::vector{1, place.ranks()} : std::vector{1}) {
    NetworkConfig network = ranks > 1 ? place.all(random) : place.one(random);
    if (ranks > 1) {
      network.schedule = "sequential";
      network.mesh = sequence_mesh(SpMode::ring, place.topology(), ranks);
    }
    const auto decoder = make(network);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double first = ms_of(*decoder, i);
      ms_of(*decoder, i);  // captures
      std::vector<double> ms;
      for (int n = 0; n < options.repetitions; ++n) ms.push_back(ms_of(*decoder, i));
      std::ranges::sort(ms);
      const double median = ms[ms.size() / 2];
      if (ranks == 1) alone.push_back(median);
      const int64_t arena = decoder->bound(i).executor(0).schedule().memory.arena_bytes;
      print(fmt::format("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", sizes[i], ranks, first,
                        median, alone[i] / median, static_cast<double>(arena) * 1e-9));
    }
  }
}

}  // namespace braid::app
