#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace braid::cpu {

// The instruction sets that kernels are compiled for, each a superset of the one before.
//   baseline  what the compiler assumes without flags (SSE2 on x86-64, NEON on AArch64)
//   avx2      AVX2, FMA, F16C (Haswell, Zen)
//   avx512    avx2 and AVX-512 F, BW, CD, DQ, VL (Skylake-X, Zen 4)
enum class Isa { baseline, avx2, avx512 };
constexpr int kNumIsas = 3;

// Extensions that only some machines of an Isa have. True only if the operating system keeps the
// registers, too (amx: after asking for permission to use tile data).
struct CpuFeatures {
  Isa isa = Isa::baseline;
  bool avx_vnni = false;     // VPDPBUSD on 256-bit registers, VEX encoding
  bool avx512_vnni = false;  // VPDPBUSD on 512-bit registers
  bool avx512_bf16 = false;  // VDPBF16PS
  bool amx_int8 = false;     // tiles and TDPB*
  bool amx_bf16 = false;     // tiles and TDPBF16PS
};

// Of the running machine; read once, the same on every call.
const CpuFeatures& cpu_features();
inline Isa detected_isa() {
  return cpu_features().isa;
}

// baseline up to detected_isa(), in order, for tests to sweep.
std::span<const Isa> usable_isas();

std::string_view name(Isa isa);

}  // namespace braid::cpu
