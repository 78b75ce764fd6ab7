#pragma once

#include <algorithm>
#include <array>

#include "braid/kernels/cpu/linear/kernels.h"
#include "braid/kernels/cpu/linear/linear.h"

// Shared by linear() and expert_linear(): an instruction set's kernels, packed rows of x, and sizes
// of the panel path's buffers.
namespace braid::cpu::linear_detail {

const Kernels& kernels(LinearIsa isa);
Activation activation_of(Gate gate);

// Quantizing x costs about a cycle per 4 elements, a barrier as much as some thousand elements.
constexpr int64_t kSharedPackElems = 16384;
// An unpacked panel of 32 rows takes 144 KiB for 2048 codes, 128 KiB for 1024 floats: inside L2.
constexpr int64_t kCodeColumns = 2048, kRealColumns = 1024;
constexpr int64_t kMaxChunk = 1008;

constexpr int64_t whole_chunk(int64_t M) {
  return std::min(round_up(M, kTileMultiple), kMaxChunk);
}

// dtypes that need a separately packed x, in order of first appearance.
struct Packs {
  Codes codes = Codes::digits;
  std::array<DType, kMaxLinearWeights> dtypes{};
  int count = 0;

  int add(DType dtype) {
    // f32, f16 and bf16 weights meet the same floats.
    if (kind_of(dtype) == Kind::real) dtype = DType::f32;
    for (int i = 0; i < count; ++i) {
      if (dtypes[i] == dtype) return i;
    }
    dtypes[count] = dtype;
    return count++;
  }
  int64_t bytes(int64_t M, int64_t K) const {
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += pack_bytes(i, M, K);
    return sum;
  }
  int64_t pack_bytes(int i, int64_t M, int64_t K) const {
    return round_up(M * packed_bytes_per_row(kind_of(dtypes[i]), codes, K), 64);
  }
};

// Per thread: sums of `chunk` rows and an unpacked panel, twice with a gate.
inline int64_t panel_scratch_bytes(int64_t chunk, int64_t k_block, Kind kind, Gate gate) {
  const int rows = kMaxPanelRows;
  const int64_t block = round_up(k_block, 32) / 32;
  return (gate == Gate::none ? 1 : 2) *
         round_up(chunk * rows * 4 + block * panel_block_bytes(kind, rows), 64);
}

}  // namespace braid::cpu::linear_detail
