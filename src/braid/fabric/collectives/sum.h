#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::fabric {

// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ...: in rank order, so that every rank with
// the same vectors gets the same bits. `out` may be an input; all are 4-byte aligned f32
// [n].
void sum_in_order(float* out, std::span<const std::byte* const> in, int64_t n);

}  // namespace braid::fabric
