#pragma once

#include <span>
#include <string_view>

#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// The machines that the linear kernels are compiled for: Isa, and with or without the 8-bit dot
// product (VNNI), which Isa leaves open.
enum class LinearIsa { baseline, avx2, avx2_vnni, avx512, avx512_vnni };
constexpr int kNumLinearIsas = 5;

// The machine's fastest that needs nothing beyond `cap`.
LinearIsa best_linear_isa(Isa cap = detected_isa());

// All that this machine can run, slowest first, for tests to sweep.
std::span<const LinearIsa> usable_linear_isas();

std::string_view name(LinearIsa isa);

}  // namespace braid::cpu
