#pragma once

#include <algorithm>

#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// A kernel in a *_simd.cc exists once per Isa, in the namespace named as the Isa.
// BRAID_DECLARE_PER_ISA(void f(int)) declares all of them; pick_isa(isa, BRAID_EACH_ISA(f)) is a
// pointer to the best of them that is neither above `isa` nor above the machine.
#if defined(__x86_64__)
#define BRAID_DECLARE_PER_ISA(...) \
  namespace baseline {             \
  __VA_ARGS__;                     \
  }                                \
  namespace avx2 {                 \
  __VA_ARGS__;                     \
  }                                \
  namespace avx512 {               \
  __VA_ARGS__;                     \
  }
#define BRAID_EACH_ISA(function) baseline::function, avx2::function, avx512::function
#else
#define BRAID_DECLARE_PER_ISA(...) \
  namespace baseline {             \
  __VA_ARGS__;                     \
  }
#define BRAID_EACH_ISA(function) baseline::function, baseline::function, baseline::function
#endif

template <class T>
const T& pick_isa(Isa isa, const T& baseline, const T& avx2, const T& avx512) {
  switch (std::min(isa, detected_isa())) {
    case Isa::avx512:
      return avx512;
    case Isa::avx2:
      return avx2;
    case Isa::baseline:
      break;
  }
  return baseline;
}

}  // namespace braid::cpu
