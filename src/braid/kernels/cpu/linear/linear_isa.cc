#include "braid/kernels/cpu/linear/linear_isa.h"

#include <array>

namespace braid::cpu {
namespace {

struct Usable {
  std::array<LinearIsa, kNumLinearIsas> isas{};
  size_t count = 0;
  void add(LinearIsa isa) { isas[count++] = isa; }
};

Usable detect() {
  const CpuFeatures& cpu = cpu_features();
  Usable usable;
  usable.add(LinearIsa::baseline);
  if (cpu.isa >= Isa::avx2) usable.add(LinearIsa::avx2);
  if (cpu.isa >= Isa::avx2 && cpu.avx_vnni) usable.add(LinearIsa::avx2_vnni);
  if (cpu.isa >= Isa::avx512) usable.add(LinearIsa::avx512);
  if (cpu.isa >= Isa::avx512 && cpu.avx512_vnni) usable.add(LinearIsa::avx512_vnni);
  return usable;
}

Isa base(LinearIsa isa) {
  if (isa >= LinearIsa::avx512) return Isa::avx512;
  return isa >= LinearIsa::avx2 ? Isa::avx2 : Isa::baseline;
}

constexpr std::array<std::string_view, kNumLinearIsas> kNames = {"baseline", "avx2", "avx2_vnni",
                                                                 "avx512", "avx512_vnni"};

}  // namespace

std::span<const LinearIsa> usable_linear_isas() {
  static const Usable usable = detect();
  return {usable.isas.data(), usable.count};
}

LinearIsa best_linear_isa(Isa cap) {
  LinearIsa best = LinearIsa::baseline;
  for (LinearIsa isa : usable_linear_isas()) {
    if (base(isa) <= cap) best = isa;
  }
  return best;
}

std::string_view name(LinearIsa isa) {
  return kNames[static_cast<size_t>(isa)];
}

}  // namespace braid::cpu
