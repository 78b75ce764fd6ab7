#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/linear/linear_isa.h"
#include "braid/tensor/view.h"

namespace braid::cpu {

// y = x w^T, and its fused followers.

// Two weights' outputs become y = act(gate) * up. none keeps every output.
enum class Gate : uint8_t { none, silu, gelu_tanh };

struct LinearWeight {
  TensorView w;                 // [N, K], any float or block dtype; rows row_bytes apart
  const float* bias = nullptr;  // [N], or null
  float* y = nullptr;           // [M, N], rows ldy apart
  int64_t ldy = 0;              // in elements
};

struct LinearParams {
  const float* x = nullptr;  // [M, K], rows ldx apart
  int64_t ldx = 0;
  int64_t M = 0, K = 0;
  // Up to kMaxLinearWeights that share x. With a gate exactly two of equal N, (gate, up): only
  // weights[0].y is written.
  std::span<const LinearWeight> weights;
  Gate gate = Gate::none;
  // [M, N], added to the result of the only weight (or of the gate); may be y itself.
  const float* residual = nullptr;
  int64_t ld_residual = 0;
};
constexpr int kMaxLinearWeights = 8;

// Inputs of the kernel's choice; no pointers.
struct LinearDesc {
  struct Weight {
    DType dtype = DType::f32;
    int64_t N = 0;
  };
  int64_t M = 0, K = 0;
  std::span<const Weight> weights;
  Gate gate = Gate::none;
  int threads = 1;
};

// stream: weights are unpacked in registers and meet all M rows of x at once; each byte of them is
// read once, in order. For M up to kMaxStreamRows.
// panel: a panel of weight rows is unpacked to a cache-resident buffer and meets x tile by tile.
enum class LinearPath : uint8_t { stream, panel };
constexpr int64_t kMaxStreamRows = 8;

struct LinearConfig {
  LinearIsa isa = LinearIsa::baseline;
  LinearPath path = LinearPath::stream;
  bool shared_pack = false;  // x is quantized once by all threads together; else by each for itself
  int64_t chunk = 0;         // rows of x per work item
  int64_t k_block = 0;       // columns of w unpacked at a time (panel)
  bool operator==(const LinearConfig&) const = default;
};
std::string to_string(const LinearConfig& config);

// Pure and cheap: no allocation, no machine state.
LinearConfig choose_linear(const LinearDesc& desc, LinearIsa isa);

// Bytes of scratch for linear() with the descriptor and any smaller M; 64-byte aligned.
int64_t linear_scratch_bytes(const LinearDesc& desc, LinearIsa isa);

// Every thread of the team calls it with the same arguments. y is complete when all have returned;
// until then x, the residual and the scratch must stay as they are. Blocks only at team.barrier().
//
// Float weights are multiplied in f32, in the order of k. Quantized weights meet x rounded to 16
// bits per 32 elements (scale = max |x| / 32512; 0 if max |x| < 1e-33): products are summed exactly
// per 32 elements and then in f32 in the order of k. An output depends on its row of w and of x
// alone: bit for bit the same whatever M, N, the team and the path, and on all machines that have
// FMA.
//
// Errors: kInvalidArgument for shapes and dtypes that do not fit together.
void linear(const LinearParams& params, const LinearConfig& config, std::byte* scratch,
            const Team& team);

}  // namespace braid::cpu
