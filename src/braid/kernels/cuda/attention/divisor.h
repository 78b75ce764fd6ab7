#pragma once

#include <cstdint>

#include "braid/base/error.h"
#include "braid/kernels/cuda/host_device.h"

namespace braid::cuda {

// A divisor that a kernel is launched with: divide() is a product and a shift.
struct Divisor {
  uint32_t factor = 0;  // ceil(2^(32 + shift) / value); 0: the value is 1
  int32_t shift = 0;
};

// value >= 1
inline Divisor make_divisor(int32_t value) {
  BRAID_CHECK(value >= 1, "a divisor of {}", value);
  if (value == 1) return {};
  int32_t shift = 0;
  while (int64_t{2} << shift < value) ++shift;  // value <= 2^(shift + 1)
  const uint64_t power = uint64_t{1} << (32 + shift);
  return {static_cast<uint32_t>((power + value - 1) / static_cast<uint64_t>(value)), shift};
}

// n / value for 0 <= n < 2^31: the factor is too large by less than a share value / 2^(32 + shift),
// so the product by less than n / 2^31 of a step.
BRAID_HOST_DEVICE int32_t divide(int32_t n, Divisor by) {
  if (by.factor == 0) return n;
#ifdef __CUDA_ARCH__
  return static_cast<int32_t>(__umulhi(static_cast<uint32_t>(n), by.factor) >> by.shift);
#else
  return static_cast<int32_t>((uint64_t{static_cast<uint32_t>(n)} * by.factor) >> 32 >> by.shift);
#endif
}

}  // namespace braid::cuda
