#include "golden/support/random_weights.h"

namespace braid::golden {
namespace {

constexpr uint64_t kGoldenGamma = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t fnv1a64(std::span<const std::byte> bytes) {
  uint64_t state = 0xCBF29CE484222325u;
  for (std::byte byte : bytes) state = (state ^ static_cast<uint64_t>(byte)) * 0x100000001B3u;
  return state;
}

int64_t TensorSpec::elems() const {
  int64_t product = 1;
  for (int64_t dim : shape) product *= dim;
  return product;
}

std::vector<float> random_tensor(uint64_t seed, const TensorSpec& spec) {
  const uint64_t key = mix(fnv1a64(std::as_bytes(std::span(spec.name))) ^ seed);
  std::vector<float> values(static_cast<size_t>(spec.elems()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto high = static_cast<int64_t>(mix(key + (i + 1) * kGoldenGamma) >> 40);
    const double u = static_cast<double>(high - (1 << 23)) / (1 << 23);
    values[i] = static_cast<float>(spec.base + spec.scale * u);
  }
  return values;
}

}  // namespace braid::golden
