#pragma once

#include <cstdint>

namespace braid::cuda {

// A pair of columns in a head with D columns, turned by the token's position.
struct Turn {
  int first, second;
  float cos, sin;

  __device__ Turn(int pair, int D, bool interleaved, int position, const uint64_t* turns,
                  float factor)
      : first(interleaved ? 2 * pair : pair), second(interleaved ? first + 1 : pair + D / 2) {
    // The product modulo 2^64 is the angle modulo a full turn; its top 32 bits as half turns.
    const uint64_t angle = static_cast<uint64_t>(position) * __ldg(turns + pair);
    sincospif(__int2float_rn(static_cast<int>(angle >> 32)) * 0x1p-31f, &sin, &cos);
    cos *= factor;
    sin *= factor;
  }

  __device__ float2 of(float x, float y) const { return {x * cos - y * sin, x * sin + y * cos}; }
};

}  // namespace braid::cuda
