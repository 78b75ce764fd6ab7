#include "braid/kernels/cuda/relay/relay_steps.h"

namespace braid::cuda {

void cut_for(RelayLinear& s, int32_t ctas) {
  constexpr int32_t kOn = kRelayWarps * kRelaySlotBytes;
  const int32_t pairs = s.units / 2, row_bytes = 2 * s.k;
  s.cut = {.pairs = RelayShares(pairs, ctas),
           .before = {},
           .x_pairs = RelayShares(s.k / 2, ctas),
           .rows_on = kOn / row_bytes,
           .bytes_on = kOn % row_bytes,
           .rows_a_byte = 1.f / static_cast<float>(row_bytes)};
  for (int part = 1; part < kRelayWeights && !s.gated; ++part) {
    s.cut.before[part] = s.cut.before[part - 1] + s.n[part - 1];
  }
}

}  // namespace braid::cuda
