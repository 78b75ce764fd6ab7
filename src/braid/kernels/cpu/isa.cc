#include "braid/kernels/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include <cstdint>

namespace braid::cpu {
namespace {

#if defined(__x86_64__)
struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

bool bit(uint32_t word, int index) {
  return (word >> index) & 1;
}

// XCR0: the register state that the operating system saves and restores.
__attribute__((target("xsave"))) uint64_t saved_state() {
  return _xgetbv(0);
}

// Linux keeps tile data off for a process until it asks (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
bool request_tile_data() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures f;
  const Cpuid one = cpuid(1, 0);
  if (!bit(one.ecx, 27)) return f;  // OSXSAVE
  const uint64_t xcr0 = saved_state();
  const bool ymm = (xcr0 & 0x6) == 0x6;
  const bool zmm = ymm && (xcr0 & 0xe0) == 0xe0;
  const bool tiles = (xcr0 & 0x60000) == 0x60000;

  const Cpuid seven = cpuid(7, 0);
  const Cpuid seven_one = cpuid(7, 1);
  const bool avx2 = ymm && bit(one.ecx, 28) && bit(one.ecx, 12) &&
                    bit(one.ecx, 29) &&  // AVX FMA F16C
                    bit(seven.ebx, 5);
  if (!avx2) return f;
  f.isa = Isa::avx2;
  f.avx_vnni = bit(seven_one.eax, 4);

  const bool avx512 = zmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 28) &&
                      bit(seven.ebx, 30) && bit(seven.ebx, 31);  // F DQ CD BW VL
  if (!avx512) return f;
  f.isa = Isa::avx512;
  f.avx512_vnni = bit(seven.ecx, 11);
  f.avx512_bf16 = bit(seven_one.eax, 5);
  if (tiles && bit(seven.edx, 24) && request_tile_data()) {
    f.amx_bf16 = bit(seven.edx, 22);
    f.amx_int8 = bit(seven.edx, 25);
  }
  return f;
}
#else
CpuFeatures detect() {
  return {};
}
#endif

constexpr Isa kIsas[kNumIsas] = {Isa::baseline, Isa::avx2, Isa::avx512};
constexpr std::string_view kNames[kNumIsas] = {"baseline", "avx2", "avx512"};

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::span<const Isa> usable_isas() {
  return {kIsas, static_cast<size_t>(detected_isa()) + 1};
}

std::string_view name(Isa isa) {
  return kNames[static_cast<int>(isa)];
}

}  // namespace braid::cpu
