// Runs a fuzz target without libFuzzer: mutates its seeds for a bounded time, and prints the seed
// that brings a failure back (TARGET SECONDS SEED).
#include "fuzz/driver/driver.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

using Rng = std::mt19937_64;

size_t below(Rng& rng, size_t n) {
  return n == 0 ? 0 : rng() % n;
}

std::string mutate(std::string input, const std::vector<std::string>& seeds, Rng& rng) {
  static constexpr unsigned char kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff, '"', '{', '}'};
  for (size_t edits = 1 + below(rng, 8); edits > 0; --edits) {
    const size_t at = below(rng, input.size());
    switch (below(rng, 7)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(rng());
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(kEdges[below(rng, sizeof(kEdges))]);
        break;
      case 2:  // eight bytes at once: lengths, offsets and counts
        for (size_t i = at; i < input.size() && i < at + 8; ++i) {
          input[i] = static_cast<char>(below(rng, 2) ? 0xff : rng());
        }
        break;
      case 3:
        input.resize(at);
        break;
      case 4:
        input.insert(at, std::string(1 + below(rng, 16), static_cast<char>(rng())));
        break;
      case 5:
        input.erase(at, 1 + below(rng, 32));
        break;
      case 6: {
        const std::string& other = seeds[below(rng, seeds.size())];
        const size_t from = below(rng, other.size());
        input.insert(at, other.substr(from, below(rng, 64)));
        break;
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const std::vector<std::string> seeds = fuzz_seeds();
  Rng rng(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  long rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    const std::string input = mutate(seeds[below(rng, seeds.size())], seeds, rng);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%ld rounds\n", rounds);
  return rounds > 0 ? 0 : 1;
}
