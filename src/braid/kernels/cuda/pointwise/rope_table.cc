#include "braid/kernels/cuda/pointwise/rope_table.h"

#include <cmath>
#include <numbers>

#include "braid/base/error.h"

namespace braid::cuda {

std::vector<uint64_t> rope_turns(const ops::RopeAttrs& attrs, const float* factors) {
  std::vector<uint64_t> out;
  for (double frequency : ops::rope_frequencies(attrs, factors)) {
    if (!(std::abs(frequency) <= 0x1p20)) {
      fail(ErrorCode::kInvalidArgument, "rope: pair {} turns {} radians per position, at most 2^20",
           out.size(), frequency);
    }
    // The quotient needs more digits than f64 has: 1 / (2 pi) in two parts, and exact products.
    constexpr double kInverse = 0.5 * std::numbers::inv_pi;
    constexpr double kInverseRest = -9.839338337591243e-18;  // 1 / (2 pi) - kInverse
    const double turns = frequency * kInverse;
    const double rest = std::fma(frequency, kInverse, -turns) + frequency * kInverseRest;
    // Both parts are whole multiples of 2^-64 or rounded to one; the sum wraps as turns do.
    const double fraction = std::abs(turns - std::trunc(turns));
    const auto high = static_cast<uint64_t>(std::ldexp(fraction, 64));
    const auto low = static_cast<int64_t>(std::llrint(std::ldexp(rest, 64)));
    out.push_back((turns < 0 ? ~high + 1 : high) + static_cast<uint64_t>(low));
  }
  return out;
}

}  // namespace braid::cuda
