#include "braid/kernels/cuda/relay/relay_steps.h"

#include <algorithm>
#include <cstdint>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Strides that put four rows' parts, at equal places among eight, into different banks.
int32_t stride_of(int32_t bytes) {
  const int32_t lines = (bytes + 31) / 32;
  return 32 * (lines + (lines + 1) % 2);
}

}  // namespace

RelayTiles relay_tiles(DType dtype, int32_t k, int32_t rows, bool boxed) {
  constexpr int32_t kStep = 256;       // elements per turn of a warp, or a row's rest
  constexpr double kBesideSteps = .4;  // cost of a slot, in steps
  const auto bytes = [&](int32_t elems) { return static_cast<int32_t>(bytes_of(dtype, elems)); };
  const int32_t steps = (k + kStep - 1) / kStep;
  const int64_t tiles = ceil_div(std::max(rows, 1), kRelayTileRows);
  RelayTiles best{.row_bytes = bytes(k), .boxed = boxed};
  double best_cost = 0;
  for (int32_t n = 1; n <= steps; ++n) {
    const int32_t elems = std::min(n * kStep, k), chunk = bytes(elems);
    const int32_t stride = stride_of(chunk + (boxed && chunk % 16 == 0 ? 0 : 15));
    if (kRelayTileRows * stride > kRelaySlotBytes) break;
    const auto chunks = static_cast<int32_t>(ceil_div(steps, n));
    const double rounds = static_cast<double>(ceil_div(tiles * chunks, kRelayWarps));
    const double cost = rounds * (n + kBesideSteps);
    if (best.chunks > 0 && cost > best_cost) continue;
    best_cost = cost;
    best.chunk_bytes = chunk, best.chunk_elems = elems;
    best.chunks = chunks, best.stride = stride;
  }
  return best;
}

void cut_for(RelayLinear& s, int32_t ctas) {
  constexpr int32_t kOn = kRelayWarps * kRelaySlotBytes;
  const int32_t pairs = s.units / 2, row_bytes = 2 * s.k;
  s.cut = {.pairs = Shares(pairs, ctas),
           .before = {},
           .x_pairs = Shares(s.k / 2, ctas),
           .rows_on = kOn / row_bytes,
           .bytes_on = kOn % row_bytes,
           .rows_a_byte = 1.f / static_cast<float>(row_bytes),
           .tiles = {}};
  const int32_t most = 2 * (s.cut.pairs.each + (s.cut.pairs.more > 0 ? 1 : 0));
  for (int part = 0; s.tiled() && part < kRelayWeights && s.n[part] > 0; ++part) {
    const int64_t bytes = bytes_of(s.dtype[part], s.k);
    const bool boxed = (bytes | reinterpret_cast<int64_t>(s.w[part])) % 16 == 0;
    s.cut.tiles[part] = relay_tiles(s.dtype[part], s.k, std::min(most, s.n[part]), boxed);
  }
  for (int part = 1; part < kRelayWeights && !s.gated; ++part) {
    s.cut.before[part] = s.cut.before[part - 1] + s.n[part - 1];
  }
}

}  // namespace braid::cuda
