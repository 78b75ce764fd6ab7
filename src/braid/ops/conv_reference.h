#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "braid/ops/rules.h"

namespace braid::ops {

// The end of a convolution's scalar reference at a pixel: SiLU of the sums [O] with `silu`, the
// residual (input 3) if present, and the row of the output.
inline void store_conv_pixel(const OpCall& call, int64_t pixel, std::span<const double> sums,
                             bool silu) {
  std::vector<float> y(sums.begin(), sums.end());
  if (silu) {
    for (float& value : y) value /= 1 + std::exp(-value);
  }
  if (call.in[3].data) {
    const std::vector<float> residual = load_row(call.in[3], pixel);
    for (size_t o = 0; o < y.size(); ++o) y[o] += residual[o];
  }
  store_row(call.out[0], pixel, y);
}

}  // namespace braid::ops
