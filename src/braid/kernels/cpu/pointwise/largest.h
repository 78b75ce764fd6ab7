#pragma once

#include <cstdint>

#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

struct Largest {
  int64_t at = -1;      // its first place; -1: no x is above -inf
  float value = 0;      // -inf for none
  bool numbers = true;  // no x is NaN or +inf
};
// The largest of x [n], which is never a NaN. Reads memory once, on the caller's thread.
Largest largest(const float* x, int64_t n, Isa isa = detected_isa());

}  // namespace braid::cpu
